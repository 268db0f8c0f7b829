"""An account at a provider that does what it is told, and the program beside it with a planned study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.fake_openai import FakeOpenAI, fake_openai
from tests.rigs.program import Program


@pytest.fixture
def account() -> Iterator[FakeOpenAI]:
    with fake_openai() as account:
        yield account


@pytest.fixture
def program(account: FakeOpenAI, tmp_path: Path) -> Program:
    program = Program(tmp_path, account.url)
    program.prepare()
    return program
