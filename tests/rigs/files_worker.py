"""Stands for `vllm run-batch` or a cluster job: answers the request files of a folder, as a program of its own.

    python files_worker.py FOLDER [--fail N]

Reads nothing but what `mode = "files"` documents: the manifests in outbox/ and the files that they name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ANSWER = "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"
Row = dict[str, Any]


def manifests(folder: Path) -> list[Row]:
    """Return the manifests of the batches that nobody cancelled."""
    paths = sorted((folder / "outbox").glob("*.manifest.json"))
    found = [json.loads(path.read_text()) for path in paths]
    return [manifest for manifest in found if not (folder / "outbox" / f"{manifest['batch']}.cancelled").exists()]


def requests(folder: Path, manifest: Row) -> list[Row]:
    """Return a batch's requests; the file must be whole."""
    data = (folder / manifest["requests"]).read_bytes()
    assert len(data) == manifest["size_bytes"]
    rows = [json.loads(line) for line in data.splitlines()]
    assert len(rows) == manifest["n_requests"]
    return rows


def chat_row(request: Row) -> Row:
    """Return a success in the shape of OpenAI's output files, which vLLM's are too."""
    assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
    body = {
        "id": f"chatcmpl-{request['custom_id']}", "object": "chat.completion", "created": 1, "model":
        request["body"]["model"], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}],
    }  # fmt: skip
    response = {"status_code": 200, "request_id": f"req-{request['custom_id']}", "body": body}
    return {"id": f"vllm-{request['custom_id']}", "custom_id": request["custom_id"], "response": response,
            "error": None}  # fmt: skip


def anthropic_row(request: Row) -> Row:
    """Return a success in the shape of Anthropic's results."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": request["params"]["model"],
        "content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }  # fmt: skip
    return {"custom_id": request["custom_id"], "result": {"type": "succeeded", "message": message}}


def answer_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield an answer to each request."""
    for row in rows:
        yield anthropic_row(row) if "params" in row else chat_row(row)


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write result rows in place, as vLLM does."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def work(folder: Path, change: Callable[[list[Row]], list[Row]] = lambda rows: rows) -> int:
    """Answer every batch that has no results yet; returns how many."""
    n_batches = 0
    for manifest in manifests(folder):
        results = folder / manifest["results"]
        if not results.exists():
            write(results, change(list(answer_rows(requests(folder, manifest)))))
            n_batches += 1
    return n_batches


if __name__ == "__main__":
    work(Path(sys.argv[1]))
