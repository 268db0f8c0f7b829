"""What later rounds asked stays so: by the same answers, each round asks what it asked when it was bought.

Simulated answers depend on their request and the simulator's seed alone, so a study is brought to its end and
compared with the record of commit cc06c86 (see `test_bought`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.golden.bought import record
from tests.rigs.swept import every

Asked = Callable[[str], dict[str, Any]]

KNOWN = {name: found for name, found in record.expected().items() if found["how"] == "finish"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """What a study asks today, all its rounds."""
    with record.desk(tmp_path_factory.mktemp("rounds"), record.how_recorded) as found:
        yield found


@pytest.mark.parametrize("name", every(2, KNOWN))
def test_all_rounds_ask_what_they_asked_when_they_were_bought(asked: Asked, name: str) -> None:
    """Ids, custom_ids and bodies to the byte, with earlier answers in them, and each request's place."""
    found = asked(name)
    assert {part: found[part] for part in ("requests", "plan")} == {
        part: KNOWN[name][part] for part in ("requests", "plan")
    }


@pytest.mark.parametrize("name", every(2, KNOWN))
def test_all_rounds_are_of_the_cells_and_the_version_that_they_were_of(asked: Asked, name: str) -> None:
    """These are the lake's own names: a migration may give others one day, and then this record too."""
    assert asked(name)["versions"] == record.lake_names(name)
