"""What was bought stays bought: no later change moves a request id, a body, or the id an answer comes back with.

The records are of commit cc06c86. A red test here means that people's answers would be bought a second time: the
change is wrong, not the record (see `tests/golden/bought/make.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden import doors
from tests.golden.bought import record
from tests.rigs.sim_cache import without_lens

Asked = Callable[[str], dict[str, Any]]

KNOWN = record.expected()
NAMES = [name for name, found in KNOWN.items() if found["how"] != "finish"]
SENT = ("requests", "plan", "lines")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """What a study asks today, by the lake's tables: no view is asked what was bought."""
    with record.desk(tmp_path_factory.mktemp("bought"), record.how_recorded) as found, without_lens():
        yield found


def test_every_study_has_its_record_and_every_record_its_study() -> None:
    assert {path.stem for path in record.STUDIES.glob("*.toml")} == set(KNOWN)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_asks_what_it_asked_when_it_was_bought(asked: Asked, name: str) -> None:
    """Ids, custom_ids and bodies to the byte, and each request's place: items, order, repeat, round."""
    found = asked(name)
    assert {part: found[part] for part in SENT} == {part: KNOWN[name][part] for part in SENT}


@pytest.mark.parametrize("name", NAMES)
def test_a_study_has_the_cells_and_the_version_that_it_had(asked: Asked, name: str) -> None:
    """These are the lake's own names: a migration may give others one day, and then this record too."""
    assert asked(name)["versions"] == record.lake_names(name)


def test_the_program_plans_what_the_python_door_plans(tmp_path: Path) -> None:
    name = "pairs_fixed"
    planned = doors.run("--lake", str(tmp_path / "lake"), "plan", str(record.STUDIES / f"{name}.toml"))
    assert planned.returncode == 0, planned.stderr
    requests = record.table(tmp_path / "lake", "requests")["request_id"]
    assert sorted(requests) == [line.split()[0] for line in KNOWN[name]["requests"]["first"]]
