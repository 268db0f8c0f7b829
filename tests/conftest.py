"""Settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Machines that run the suite are shared and slow at times: a deadline would test the machine.
settings.register_profile("batchpond", deadline=None)
settings.load_profile("batchpond")


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the programs that tests start share what they compile, outside the checkout.

    Where bytecode is not written, each of several hundred processes compiles the whole package again, which takes
    longer than most of them run.
    """
    kept = {name: os.environ.pop(name, None) for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    if kept["PYTHONDONTWRITEBYTECODE"] is not None:
        os.environ["PYTHONPYCACHEPREFIX"] = os.fspath(tmp_path_factory.mktemp("pycache"))
    yield
    os.environ.pop("PYTHONPYCACHEPREFIX", None)
    os.environ.update({name: value for name, value in kept.items() if value is not None})
