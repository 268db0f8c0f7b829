"""OpenAI's Batch API on the wire: what is sent, what odd answers come to, and a whole life."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchpond.model import (
    BatchState,
    Created,
    CreateSpec,
    FileRole,
)
from batchpond.providers import registry
from tests.rigs import wire_script
from tests.rigs.batch_wires import KEY, TOKEN
from tests.rigs.batch_wires import openai_batch as batch
from tests.rigs.wire_script import START, Answer

SPEC = CreateSpec(
    TOKEN, "/v1/chat/completions", "gpt-5-mini", "file-1", Path("unused"), 2, (("study", "s"), ("batchpond", TOKEN))
)


class Script(wire_script.Script):
    """A scripted OpenAI."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(*answers)
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj_1"}
        self.wire = registry.connect("openai", self.clock, transport=self.transport, environ=environ)


def ok(body: Any, **headers: str) -> httpx.Response:
    return httpx.Response(200, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_create_sends_one_post_with_the_token_and_keeps_the_scope() -> None:
    """The documented body, and an acknowledgement with what the answer's headers say."""
    script = Script(ok(batch(), openai_organization="org-7", openai_project="proj_7"))
    answer = script.wire.create(SPEC)
    assert isinstance(answer, Created)
    assert answer.scope == "openai/api.openai.com/org-7/proj_7"
    assert (answer.batch.batch_id, answer.batch.token, answer.batch.state) == ("batch_1", TOKEN, BatchState.QUEUED)
    assert len(script.requests) == 1
    request = script.requests[0]
    assert (request.method, request.url.path) == ("POST", "/v1/batches")
    assert (request.headers["openai-organization"], request.headers["openai-project"]) == ("org-1", "proj_1")
    assert json.loads(request.content) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"batchpond": TOKEN, "study": "s"},
    }


def test_metadata_stays_within_the_providers_bounds_and_keeps_the_token() -> None:
    """16 pairs, keys of 64, values of 512: the token is never what is cut."""
    pairs = (*((f"{number:03d}" + "k" * 90, "v" * 900) for number in range(40)), ("batchpond", TOKEN))
    script = Script(ok(batch()))
    script.wire.create(CreateSpec(TOKEN, "/v1/responses", "o3", "file-1", Path("unused"), 1, pairs))
    metadata = json.loads(script.requests[0].content)["metadata"]
    assert len(metadata) == 16
    assert metadata["batchpond"] == TOKEN
    assert max(map(len, metadata)) <= 64
    assert max(map(len, metadata.values())) <= 512


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("validating", BatchState.QUEUED),
        ("in_progress", BatchState.RUNNING),
        ("finalizing", BatchState.RUNNING),
        ("cancelling", BatchState.CANCELLING),
        ("completed", BatchState.COMPLETED),
        ("failed", BatchState.FAILED),
        ("expired", BatchState.EXPIRED),
        ("cancelled", BatchState.CANCELLED),
        ("Completed", BatchState.COMPLETED),
        ("CANCELED", BatchState.CANCELLED),
        ("archiving", BatchState.RUNNING),
        (None, BatchState.RUNNING),
        (7, BatchState.RUNNING),
    ],
)
def test_status_words_become_states_and_unknown_ones_never_end_a_batch(status: Any, state: BatchState) -> None:
    """The provider's own word is kept beside."""
    got = Script(ok(batch(status=status))).wire.get("batch_1")
    assert got is not None
    assert got.state is state
    assert got.provider_status == ("" if status is None else str(status))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1795200000, datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        (1795200000000, datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        (1795200000.0, datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        ("1795200000", datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        ("2026-11-20T18:40:00Z", datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        ("2026-11-20T19:40:00.123456789+01:00", datetime(2026, 11, 20, 18, 40, 0, 123456, tzinfo=UTC)),
        (0, None),
        (None, None),
        (-5, None),
        (10**30, None),
        ("", None),
        ("soon", None),
        ("9999-12-31T23:59:59-23:00", None),
        (True, None),
        ([], None),
    ],
)
def test_times_come_in_many_forms(value: Any, expected: datetime | None) -> None:
    """Seconds, milliseconds, ISO 8601; zero and nonsense are unknown."""
    got = Script(ok(batch(expires_at=value))).wire.get("batch_1")
    assert got is not None
    assert got.expires_at == expected


def test_odd_batch_objects_are_read_without_complaint() -> None:
    """Empty ids are none, counts as text are numbers, unknown fields are kept in raw."""
    odd = batch(
        status="completed",
        output_file_id="",
        error_file_id="file-e",
        request_counts={"total": "10", "completed": None, "failed": -1},
        errors={"data": [{"code": "invalid_json_line", "message": "m", "line": 7}, None, 3]},
        new_field={"x": [1]},
        metadata=None,
    )
    script = Script(ok(odd))
    got = script.wire.get("batch_1")
    assert got is not None
    assert script.wire.result_files(got) == ((FileRole.ERROR, "file-e"),)
    assert (got.n_total, got.n_completed, got.n_failed, got.token) == (10, None, None, None)
    assert [(error.code, error.line) for error in got.errors] == [("invalid_json_line", 7)]
    assert got.seen["new_field"] == {"x": [1]}


def test_uploads_are_found_by_name_until_the_list_is_older_than_the_search() -> None:
    """Paging stops at files made before; a foreign name or an old namesake does not count."""
    now = int(START.timestamp())

    def file(number: int, name: str, age_s: int) -> dict[str, Any]:
        return {"id": f"file-{number}", "filename": name, "created_at": now - age_s, "bytes": 1}

    pages = [
        ok({"data": [file(5, "mine", 10), file(4, "other", 20)], "has_more": True, "last_id": "file-4"}),
        ok({"data": [file(3, "mine", 60), file(2, "mine", 90_000)], "has_more": True, "last_id": "file-2"}),
        ok({"data": [file(1, "mine", 99_000)], "has_more": True, "last_id": "file-1"}),
    ]
    script = Script(*pages)
    found = script.wire.find_uploads("mine", START - timedelta(minutes=5))
    assert [each.file_id for each in found] == ["file-5", "file-3"]
    assert len(script.requests) == 3
    assert script.requests[0].url.params["purpose"] == "batch"
