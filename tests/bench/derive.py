"""What it costs to make responses and judgments of raw lines, beside DuckDB reading and writing the same file.

    python -m tests.bench.derive [LINES]        # default 10,000 lines a file

For each case a result file as its provider writes it is brought into a lake. Then, in turns, in this process and on one
thread: DuckDB's `read_json` of the file to Parquet, all its columns found out, with nothing else asked of it; and
`derive`, from the lake's raw lines to published responses, judged and priced. Prints for each case the least CPU
seconds of the rounds, the floor's, their ratio and its limit; ends with 1 where a limit is passed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from batchpond import ids
from batchpond.answers import derive
from batchpond.lake.disk import read_rows
from batchpond.lake.jsonl import RawFile, publish_raw, shard_file_name
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.model import FileRole, PricedModel, Response
from batchpond.study.prices import Prices
from batchpond.tasks.base import READER, Rule
from batchpond.tasks.compliance import ComplianceRule
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.prompts import PromptsRule

N_ROUNDS = 7
RATIO_MAX = 1.5
ATTEMPT = ids.attempt_id("lake", "shard", 1)
PROMPTS = PromptsRule(
    form="json", fields={name: f"/{name}" for name in ("score", "label", "confidence", "explanation")}
)
TEXT = (
    "the essay states its claim early and keeps to it while each paragraph adds one reason although some transitions"
    " repeat themselves and a quotation is left without comment so that the reader has to guess what it's meant to show"
)
WORDS = TEXT.split()

Say = Callable[[random.Random], str]


def reason(chance: random.Random, n_words: int = 40) -> str:
    """Return a sentence or two that no other answer has."""
    words = chance.choices(WORDS, k=n_words)
    return f"{' '.join(words[: n_words // 2]).capitalize()}. {' '.join(words[n_words // 2 :]).capitalize()}."


def tag(chance: random.Random) -> str:
    """Answer a pairwise prompt with the tag alone, as most templates ask for."""
    return f"<BETTER_SAMPLE>SAMPLE_{chance.randint(1, 2)}</BETTER_SAMPLE>"


def reasoned_tag(chance: random.Random) -> str:
    """Answer a pairwise prompt step by step."""
    return f"{reason(chance)}\n\n{tag(chance)}"


def scores(chance: random.Random) -> str:
    """Answer a prompt that asks for JSON."""
    found = {"score": chance.randint(1, 10), "label": chance.choice(["good", "poor"])}
    return json.dumps({"explanation": reason(chance), **found, "confidence": chance.randint(50, 99) / 100})


def complies(chance: random.Random) -> str:
    """Answer whether an output keeps to a statement."""
    found = {"compliant": chance.random() < 0.7, "confidence": chance.randint(50, 99) / 100}
    return json.dumps({"explanation": reason(chance), **found})


def chat(custom_id: str, text: str, number: int) -> dict[str, Any]:
    """Return a line of OpenAI's output file."""
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    usage = {
        "prompt_tokens": 400 + number % 97, "completion_tokens": 20 + number % 31,
        "total_tokens": 420 + number % 97 + number % 31,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = {
        "id": f"chatcmpl-{number:024d}", "object": "chat.completion", "created": 1_790_000_000 + number,
        "model": "gpt-5.4-mini-2026-03-17", "choices": [choice], "usage": usage, "service_tier": "default",
        "system_fingerprint": "fp_0a1b2c3d4e",
    }  # fmt: skip
    response = {"status_code": 200, "request_id": f"{number:032x}", "body": body}
    return {"id": f"batch_req_{number:024x}", "custom_id": custom_id, "response": response, "error": None}


def message(custom_id: str, text: str, number: int) -> dict[str, Any]:
    """Return a line of Anthropic's results."""
    usage = {
        "input_tokens": 400 + number % 97, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 20 + number % 31, "service_tier": "batch",
    }  # fmt: skip
    said = {
        "model": "claude-haiku-4-5-20251001", "id": f"msg_{number:024d}", "type": "message", "role": "assistant",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    return {"custom_id": custom_id, "result": {"type": "succeeded", "message": said}}


def candidate(custom_id: str, text: str, number: int) -> dict[str, Any]:
    """Return a line of Gemini's results."""
    said = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
    n_in, n_out, n_thought = 400 + number % 97, 20 + number % 31, 60 + number % 13
    usage = {
        "promptTokenCount": n_in, "candidatesTokenCount": n_out, "totalTokenCount": n_in + n_out + n_thought,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": n_in}], "thoughtsTokenCount": n_thought,
    }  # fmt: skip
    response = {
        "candidates": [said], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash",
        "responseId": f"r{number:022d}",
    }  # fmt: skip
    return {"key": custom_id, "response": response}


@dataclass(frozen=True)
class Case:
    """A file of one provider's lines, and the rule that reads their texts."""

    name: str
    model: PricedModel
    line: Callable[[str, str, int], dict[str, Any]]
    rule: Rule
    say: Say


OPENAI, ANTHROPIC = PricedModel("openai", "gpt-5.4-mini"), PricedModel("anthropic", "claude-haiku-4-5")
GEMINI = PricedModel("gemini", "gemini-2.5-flash")
CASES = (
    Case("openai, pairwise", OPENAI, chat, PairwiseRule(), tag),
    Case("openai, pairwise with reasons", OPENAI, chat, PairwiseRule(), reasoned_tag),
    Case("openai, prompts (json)", OPENAI, chat, PROMPTS, scores),
    Case("openai, compliance", OPENAI, chat, ComplianceRule(), complies),
    Case("anthropic, prompts (json)", ANTHROPIC, message, PROMPTS, scores),
    Case("gemini, compliance", GEMINI, candidate, ComplianceRule(), complies),
)


def source_of(case: Case, store: Store, path: Path, n_lines: int) -> derive.Source:
    """Write a case's file, and bring it and the shard that it answers into a lake."""
    chance = random.Random(case.name)
    requests = [ids.digest("request", case.name, number) for number in range(n_lines)]
    with path.open("w") as out:
        for number, request_id in enumerate(requests):
            line = case.line(ids.custom_id(ATTEMPT, request_id), case.say(chance), number)
            out.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")
    empty = dict.fromkeys(SHARD_REQUESTS.schema.names)
    rows = [
        empty | {"shard_id": path.stem, "line_number": n, "request_id": r, "request_key": r[:20], "requests_file": "f"}
        for n, r in enumerate(requests, 1)
    ]
    store.publish(SHARD_REQUESTS, shard_file_name(case.model.provider, path.stem), rows)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    file = RawFile(case.model.provider, path.stem, ATTEMPT, "out", FileRole.OUTPUT, sha256, created_at=None)
    publish_raw(store, file, path)
    return derive.Source(path.stem, ATTEMPT, ATTEMPT, case.model.provider, "batch", (file,), None)


def price_of(model: PricedModel) -> derive.PriceRow:
    """Return what a pass prices responses by."""
    book = Prices()

    def price(one: Response) -> float | None:
        return book.cost(model, one)

    return price


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a piece of work in this process."""
    before = time.process_time()
    work()
    return time.process_time() - before


def measure(case: Case, folder: Path, n_lines: int) -> tuple[float, float]:
    """Return the least CPU seconds of deriving a case's file and of its floor."""
    store, path = Store.init(folder / "lake"), folder / "lines.jsonl"
    source = source_of(case, store, path, n_lines)
    parser_id, spec = f"{case.rule.parser_id}-r{READER}", {**case.rule.to_spec(), "read_by": READER}
    specs: Mapping[str, dict[str, Any]] = {parser_id: spec}
    connection = duckdb.connect(config={"threads": 1})
    copy = f"COPY (FROM read_json('{path}', format = 'newline_delimited')) TO '{folder}/floor.parquet'"
    work = functools.partial(derive.derive, store, source, specs, price_of(case.model))
    figures, floors = [], []
    for _ in range(N_ROUNDS):
        floors.append(cpu_s(functools.partial(connection.execute, copy)))
        figures.append(cpu_s(work))
    (judgments,) = store.files("judgments")
    outcomes = set(read_rows(judgments, ["outcome"]).column(0).to_pylist())
    assert outcomes == {"decided"}, outcomes
    return min(figures), min(floors)


def main() -> None:
    """Measure all cases."""
    n_lines = int(sys.argv[1]) if sys.argv[1:] else 10_000
    is_over = False
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="batchpond-derive-") as name:
            figure_s, floor_s = measure(case, Path(name), n_lines)
            size_kb = (Path(name) / "lines.jsonl").stat().st_size / n_lines / 1000
        ratio = figure_s / floor_s
        is_over = is_over or ratio > RATIO_MAX
        print(
            f"{case.name:30} {n_lines:,} lines of {size_kb:.2f} KB: {figure_s:.3f} CPU s, read_json to Parquet"
            f" {floor_s:.3f}, ratio {ratio:.2f} (limit {RATIO_MAX}){'  TOO MUCH' if ratio > RATIO_MAX else ''}"
        )
    sys.exit(is_over)


if __name__ == "__main__":
    main()
