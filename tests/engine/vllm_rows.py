"""vLLM's own reading of batch input lines and writing of result rows, for a test in another interpreter.

Runs with the interpreter that has vLLM and imports nothing of batchpond. Each line of standard input is a
JSON object, and has one line of JSON as its answer:

    {"line": TEXT}                          what BatchRequestInput makes of an input line
    {"custom_id": TEXT, "ending": {...}}    the row that vLLM writes for a request that ends so

An ending is {"body": ...} for a chat completion, {"error": {...}} for an error that the engine returns,
{"http_error": {...}} for one it returns as an HTTP answer, {"raises": TEXT, "kind": ...} for an exception in it,
{"streams": true} for an answer in pieces, {"unserved": TEXT} for a request that never reached it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse  # type: ignore[import-not-found]
from vllm.entrypoints.launchers import run_batch  # type: ignore[import-not-found]
from vllm.entrypoints.openai.chat_completion.protocol import (  # type: ignore[import-not-found]
    ChatCompletionRequest,
    ChatCompletionResponse,
)
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse  # type: ignore[import-not-found]
from vllm.exceptions import VLLMValidationError  # type: ignore[import-not-found]

_KINDS: dict[str, type[Exception]] = {
    "value": ValueError,
    "type": TypeError,
    "runtime": RuntimeError,
    "unsupported": NotImplementedError,
    "invalid": VLLMValidationError,
}


def read(line: str) -> dict[str, Any]:
    """Return an input line as vLLM understands it, `ignored` being the members that it does not know."""
    try:
        found = run_batch.BatchRequestInput.model_validate_json(line.strip())
    except ValueError as error:
        return {"refused": str(error)}
    assert isinstance(found.body, ChatCompletionRequest)
    ignored = sorted([*(found.model_extra or {}), *(found.body.model_extra or {})])
    body = found.body.model_dump(exclude_unset=True, mode="json")
    return {"custom_id": found.custom_id, "method": found.method, "url": found.url, "body": body, "ignored": ignored}


async def write(custom_id: str, ending: dict[str, Any]) -> str:
    """Return the row that vLLM's own batch runner writes to its file, without the line feed."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    request = run_batch.BatchRequestInput(custom_id=custom_id, method="POST", url="/v1/chat/completions", body=body)
    if "unserved" in ending:
        row = run_batch.make_error_request_output(request, ending["unserved"])
    else:
        tracker = run_batch.BatchProgressTracker()
        row = await run_batch.run_request(lambda _: _end(ending), request, tracker)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        await run_batch.write_local_file(file.name, [row])
        text = Path(file.name).read_bytes().decode()
    assert text.count("\n") == 1
    return text.removesuffix("\n")


async def _end(ending: dict[str, Any]) -> Any:
    match ending:
        case {"body": body}:
            return ChatCompletionResponse.model_validate(body)
        case {"error": error}:
            return ErrorResponse(error=ErrorInfo(**error))
        case {"http_error": error}:
            return JSONResponse(ErrorResponse(error=ErrorInfo(**error)).model_dump(), status_code=error["code"])
        case {"raises": message, "kind": kind}:
            raise _KINDS[kind](message)
        case _:
            return _pieces()


async def _pieces() -> Any:
    yield "data: [DONE]\n\n"


def main() -> None:
    """Answer each line of standard input on standard output."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what vLLM prints must not mix with the answers
    for line in sys.stdin:
        asked = json.loads(line)
        if "line" in asked:
            answer = read(asked["line"])
        else:
            answer = {"row": asyncio.run(write(asked["custom_id"], asked["ending"]))}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
