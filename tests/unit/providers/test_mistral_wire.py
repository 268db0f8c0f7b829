"""Mistral's batch jobs on the wire: pages by number, a search by the token, and what jobs say of themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchpond.errors import ProviderError
from batchpond.model import EPOCH, BatchState, Created, FileRole
from batchpond.run.find import list_since
from tests.rigs.batch_wires import JOB_ID, MISTRAL, TOKEN, jobs_page, mistral_job


def asked(script: Any) -> list[dict[str, str]]:
    return [dict(request.url.params) for request in script.requests]


def numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [mistral_job(id=f"job-{i:03d}") for i in range(first, last)]


def test_one_post_names_file_model_and_hours_and_carries_the_token() -> None:
    script = MISTRAL.script(MISTRAL.ok(mistral_job()))
    answer = script.wire.create(MISTRAL.spec(Path("unused")))
    assert isinstance(answer, Created)
    assert (answer.batch.token, answer.batch.input_file_id, answer.scope) == (
        TOKEN, "file-1", "mistral/api.mistral.ai",
    )  # fmt: skip
    (request,) = script.requests
    assert request.url.path == "/v1/batch/jobs"
    assert json.loads(request.content) == {
        "input_files": ["file-1"], "endpoint": "/v1/chat/completions", "model": "mistral-small-2603",
        "timeout_hours": 24, "metadata": {"batchpond": TOKEN, "study": "s"},
    }  # fmt: skip


def test_a_listing_goes_on_by_numbers_until_its_total_is_reached() -> None:
    """Three pages of 230 jobs, each asked for once; all of it is needed for an absence."""
    script = MISTRAL.script(
        *(MISTRAL.ok(jobs_page(230, *numbered(first, min(first + 100, 230)))) for first in (0, 100, 200))
    )
    listing = list_since(script.wire, EPOCH)
    assert listing.is_complete
    assert [batch.batch_id for batch in listing.batches] == [f"job-{i:03d}" for i in range(230)]
    same = {"page_size": "100", "order_by": "-created"}
    assert asked(script) == [same | {"page": str(number)} for number in range(3)]


def test_a_job_that_is_made_while_pages_are_read_hides_no_other() -> None:
    """It moves one to the next page, where it stands twice; one that is deleted may hide one, and is an error."""
    grown = MISTRAL.script(
        MISTRAL.ok(jobs_page(101, *numbered(1, 101))), MISTRAL.ok(jobs_page(102, *numbered(100, 102)))
    )
    assert {batch.batch_id for batch in list_since(grown.wire, EPOCH).batches} == {
        f"job-{i:03d}" for i in range(1, 102)
    }
    shrunk = MISTRAL.script(
        MISTRAL.ok(jobs_page(102, *numbered(0, 100))), MISTRAL.ok(jobs_page(101, *numbered(101, 102)))
    )
    with pytest.raises(ProviderError, match="changed meanwhile"):
        list_since(shrunk.wire, EPOCH)


def test_a_job_is_found_by_its_token() -> None:
    """The metadata's name is a parameter of its own; what comes back is looked at by the caller."""
    script = MISTRAL.script(MISTRAL.ok(jobs_page(1, mistral_job())))
    assert [batch.batch_id for batch in script.wire.find_batches(TOKEN)] == [JOB_ID]
    assert asked(script) == [{"batchpond": TOKEN, "page": "0", "page_size": "100"}]


def test_uploads_are_listed_page_by_page_whatever_the_total_counts() -> None:
    """No absence is proven by files: a full page goes on, a short one ends."""
    row = {"id": "file-1", "filename": "t.jsonl", "bytes": 8, "created_at": 1795200000}
    first = {"data": [row | {"id": f"file-{i}"} for i in range(100)], "total": 7}
    script = MISTRAL.script(MISTRAL.ok(first), MISTRAL.ok({"data": []}))
    assert len(script.wire.find_uploads("t.jsonl", EPOCH)) == 100
    assert [each["page"] for each in asked(script)] == ["0", "1"]


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("QUEUED", BatchState.QUEUED),
        ("RUNNING", BatchState.RUNNING),
        ("SUCCESS", BatchState.COMPLETED),
        ("FAILED", BatchState.FAILED),
        ("TIMEOUT_EXCEEDED", BatchState.EXPIRED),
        ("CANCELLATION_REQUESTED", BatchState.CANCELLING),
        ("CANCELLED", BatchState.CANCELLED),
        ("success", BatchState.COMPLETED),
        ("ARCHIVED", BatchState.RUNNING),
        (None, BatchState.RUNNING),
    ],
)
def test_words_become_states_and_unknown_ones_never_end_a_job(word: Any, state: BatchState) -> None:
    got = MISTRAL.script(MISTRAL.ok(mistral_job(status=word))).wire.get(JOB_ID)
    assert got is not None
    assert got.state is state


def test_a_cancelled_job_with_a_whole_output_file_gives_it_up() -> None:
    """All of its rows, and the errors of rows are none of the job's own."""
    job = mistral_job(
        status="CANCELLED", output_file="o", error_file=None, completed_at=1795200060, total_requests=8,
        completed_requests=8, succeeded_requests=7, failed_requests=1, errors=[{"message": "bad url", "count": 1}],
    )  # fmt: skip
    script = MISTRAL.script(MISTRAL.ok(job))
    got = script.wire.get(JOB_ID)
    assert got is not None
    assert script.wire.result_files(got) == ((FileRole.OUTPUT, "o"),)
    assert (got.n_total, got.n_completed, got.n_failed, got.errors) == (8, 7, 1, ())
    assert got.ended_at is not None


def test_a_failed_job_says_why_and_two_input_files_name_no_attempt() -> None:
    job = mistral_job(status="FAILED", errors=[{"message": "no such file", "count": 2}], input_files=["a", "b"])
    got = MISTRAL.script(MISTRAL.ok(job)).wire.get(JOB_ID)
    assert got is not None
    assert ([error.message for error in got.errors], got.input_file_id) == (["no such file"], None)


def test_metadata_stay_within_mistrals_bounds() -> None:
    """Names of 32 characters at most; nothing empty, which a job would be refused for."""
    script = MISTRAL.script(MISTRAL.ok(mistral_job()))
    spec = MISTRAL.spec(Path("unused"))
    named = (("batchpond", TOKEN), ("x" * 40, "y" * 600), ("cells", ""))
    script.wire.create(type(spec)(*(getattr(spec, name) for name in spec.__slots__[:-1]), named))
    assert json.loads(script.requests[0].content)["metadata"] == {"batchpond": TOKEN, "x" * 32: "y" * 512}
