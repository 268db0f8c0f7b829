"""What `status` says of a study of stages: which failed, what waits for what, and that nothing is asked twice."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from typing import Any

import pytest

from tests.flow.test_stages_rounds import asked_by_request
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use
from tests.unit.cli.test_cli_lake import call

JUDGED = f"{RUBRICS}{use('compliance_brief')}"


def study() -> str:
    """Return answers of two models apart, a ranking of what both gave, and a second look at what was decided."""
    return (
        'study = "demo"\n'
        + stage("first", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4.1-mini')}")
        + stage("second", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4o-mini')}")
        + stage("verdicts", "compliance", 'stage = "first"', f"---{JUDGED}{models('gpt-5.4-mini')}")
        + stage("again", "compliance", 'stage = "verdicts"\nafter = "second"', f"---{JUDGED}{models('gpt-5.4-nano')}")
    )  # fmt: skip


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """A study whose first stage has failed as a whole while the second one is still on its way."""
    rig = StageRig(tmp_path_factory.mktemp("failed") / "rig", toml=study(), n_inputs=2)
    rig.world.add_fault("lines@1:error_rows=2")
    rig.plan()
    rig.submit()
    return rig


def told(rig: StageRig) -> dict[str, dict[str, Any]]:
    """Return the stages as `status --json` gives them."""
    result = call(rig.lake, "status", "demo", "--json")
    return {stage["stage"]: stage for stage in json.loads(result.stdout)["stages"]}


def test_status_says_what_waits_for_what_then_what_failed_and_after_a_retry_nothing_is_asked_twice(
    failed: StageRig,
) -> None:
    begun = told(failed)
    assert {name: (one["state"], one["waits_for"]) for name, one in begun.items()} == {
        "first": ("asking", []),
        "second": ("asking", []),
        "verdicts": ("waiting", ["first"]),
        "again": ("waiting", ["verdicts", "second"]),
    }
    assert begun["first"]["feeds"] == ["verdicts"]
    failed.finish()
    result = call(failed.lake, "status", "demo")
    assert "stage first of study demo has no usable answer: nothing follows from it in verdicts" in result.stderr
    assert "stage verdicts of study demo has nothing to ask about: first gave it no row" in result.stderr
    assert "`batchpond retry` asks again" in result.stderr
    rows = list(csv.DictReader(io.StringIO(call(failed.lake, "status", "--stages", "--format", "csv").stdout)))
    assert [(row["stage"], row["state"], row["waits_for"], row["n_usable"]) for row in rows] == [
        ("first", "no usable answer", "", "0"),
        ("second", "done", "", "2"),
        ("verdicts", "nothing to ask", "first", "0"),
        ("again", "nothing to ask", "verdicts", "0"),
    ]
    failed.retry()
    failed.finish()
    after = told(failed)
    assert {name: (one["state"], one["n_usable"]) for name, one in after.items()} == dict.fromkeys(after, ("done", 2))
    assert Counter(asked_by_request(failed).values()) == {2: 2, 1: 6}, "asked twice is what was retried, and no more"
    assert failed.violations() == []


def test_batches_and_stages_cannot_be_asked_for_together(failed: StageRig) -> None:
    with pytest.raises(Exception, match="--batches and --stages"):
        call(failed.lake, "status", "--stages", "--batches")
