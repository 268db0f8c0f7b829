"""Groq's Batch API on the wire: OpenAI's words, Groq's address, and lists that are told whole or may be cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchpond.model import EPOCH, Created
from batchpond.providers import registry
from tests.rigs.batch_wires import GROQ, KEY, TOKEN, X, openai_batch
from tests.rigs.wire_script import Script


def listed(n: int) -> httpx.Response:
    """Return a list of so many batches, in no order."""
    rows = [openai_batch(id=f"batch_{i:03d}", created_at=1795200000 + 7 * i % n) for i in range(n)]
    return httpx.Response(200, json={"object": "list", "data": rows}, headers=X)


def script(*answers: Any, **environ: str) -> Script:
    made = Script(*answers)
    made.wire = registry.connect("groq", made.clock, transport=made.transport, environ={"GROQ_API_KEY": KEY} | environ)
    return made


@pytest.mark.parametrize("url", [None, "https://api.groq.com", "https://api.groq.com/openai/v1"])
def test_one_post_names_the_file_and_carries_the_token(url: str | None) -> None:
    """Below the path that Groq's SDK adds to a base URL without one."""
    made = script(GROQ.ok(openai_batch()), **({} if url is None else {"GROQ_BASE_URL": url}))
    answer = made.wire.create(GROQ.spec(Path("unused")))
    assert isinstance(answer, Created)
    assert (answer.batch.token, answer.scope) == (TOKEN, "groq/api.groq.com")
    (request,) = made.requests
    assert str(request.url) == "https://api.groq.com/openai/v1/batches"
    assert json.loads(request.content) == {
        "input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h",
        "metadata": {"batchpond": TOKEN, "study": "s"},
    }  # fmt: skip


def test_a_list_is_one_page_newest_first_and_is_asked_for_without_parameters() -> None:
    """Its SDK sends none, and nothing says that there is more."""
    made = script(listed(7))
    page = made.wire.list_page(None)
    dates = [batch.created_at for batch in page.batches if batch.created_at is not None]
    assert (len(dates), page.next_cursor) == (7, None)
    assert dates == sorted(dates, reverse=True)
    assert dict(made.requests[0].url.params) == {}


def test_a_list_as_long_as_servers_make_them_is_not_taken_for_complete() -> None:
    """Its oldest batch goes on to a page that has no end: no absence is proven by it."""
    made = script(listed(100), openai_batch(id="batch_000"), openai_batch(id="batch_000"))
    page = made.wire.list_page(None)
    assert len(page.batches) == 99
    assert page.next_cursor is not None


def test_uploads_are_found_in_a_list_without_pages() -> None:
    """By name, whatever else is there, and nothing follows a thousand of them."""
    names = ["t.jsonl", *(f"f{i}" for i in range(1_000))]
    rows = [{"id": f"file-{i}", "filename": name, "created_at": 1795200000} for i, name in enumerate(names)]
    made = script(httpx.Response(200, json={"object": "list", "data": rows}, headers=X))
    assert [found.file_id for found in made.wire.find_uploads("t.jsonl", EPOCH)] == ["file-0"]
    assert [dict(request.url.params) for request in made.requests] == [{}]
