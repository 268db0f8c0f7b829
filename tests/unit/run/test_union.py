"""What counts of an attempt's downloads is their union: no body, in whatever order, takes an answer away."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batchpond import ids
from batchpond.answers import derive
from batchpond.lake.disk import read_rows
from batchpond.lake.jsonl import RawFile, publish_raw, shard_file_name
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.model import FileRole, Take

ATTEMPT = ids.attempt_id("lake", "shard", 1)
REQUESTS = [ids.digest("request", n) for n in range(6)]
NAMES = [ids.custom_id(ATTEMPT, request_id) for request_id in REQUESTS]
TEXTS = ("one", "two")


def answer(name: str, text: str, *, is_spaced: bool = False) -> bytes:
    message = {"role": "assistant", "content": text}
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return _line(name, 200, body, is_spaced=is_spaced)


def failure(name: str) -> bytes:
    return _line(name, 500, {"error": {"message": "overloaded", "code": "server_error"}})


def _line(name: str, status_code: int, body: object, *, is_spaced: bool = False) -> bytes:
    response = {"status_code": status_code, "request_id": "r", "body": body}
    document = {"custom_id": name, "response": response, "error": None}
    return json.dumps(document, separators=(" , ", " : ") if is_spaced else None).encode()


ANSWERS = {answer(n, t, is_spaced=s): (n, t) for n in NAMES for t in TEXTS for s in (False, True)}
LINES = st.one_of(
    st.sampled_from(sorted(ANSWERS)),
    st.sampled_from([failure(name) for name in NAMES]),
    st.sampled_from([answer("of-another-batch", "one"), b"<html>", b'  "message": "try again",', b"{", b""]),
)
FILE_IDS = st.sampled_from(["out-1", "out-2"])


class Downloads(RuleBasedStateMachine):
    """Any sequence of bodies of two files; the model is what was ever answered, in the order in which it came."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.init(Path(self.folder.name) / "lake")
        empty = dict.fromkeys(SHARD_REQUESTS.schema.names)
        rows = [
            empty | {"shard_id": "shard", "line_number": n, "request_id": r, "request_key": r, "requests_file": "f"}
            for n, r in enumerate(REQUESTS, 1)
        ]
        self.store.publish(SHARD_REQUESTS, shard_file_name("openai", "shard"), rows)
        self.files: list[RawFile] = []
        self.answered: dict[str, list[str]] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(file_id=FILE_IDS, lines=st.lists(LINES, min_size=1, max_size=9))
    def deliver(self, file_id: str, lines: list[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        file = RawFile(
            "openai", "batch", ATTEMPT, file_id, FileRole.OUTPUT, hashlib.sha256(data).hexdigest(), created_at=None
        )
        if file in self.files:
            return
        path = self.store.scratch()
        path.write_bytes(data)
        publish_raw(self.store, file, path)
        self.files.append(file)
        for line in lines:
            if line in ANSWERS:
                name, text = ANSWERS[line]
                self.answered.setdefault(name, []).append(text)

    @rule(file_id=FILE_IDS, n=st.integers(1, 6), text=st.sampled_from(TEXTS))
    def deliver_the_whole_cut_after(self, file_id: str, n: int, text: str) -> None:
        self.deliver(file_id, [answer(name, text) for name in NAMES[:n]])

    def derived(self, take: Take | None = None) -> tuple[derive.Tally, list[dict[str, str]]]:
        source = derive.Source("shard", ATTEMPT, ATTEMPT, "openai", "batch", tuple(self.files), take)
        tally = derive.derive(self.store, source, {}, lambda _: None)
        rows = [row for path in self.store.files("responses") for row in read_rows(path).to_pylist()]
        return tally, [row for row in rows if row["request_id"]]

    @property
    def differing(self) -> set[str]:
        return {name for name, texts in self.answered.items() if len(set(texts)) > 1}

    @invariant()
    def what_was_ever_answered_stays_answered_by_what_came_first(self) -> None:
        tally, rows = self.derived()
        counted = [row for row in rows if row["match"] == "matched"]
        assert len({row["custom_id"] for row in counted}) == len(counted) == tally.n_matched
        found = {row["custom_id"]: row["text"] for row in counted if row["status"] == "succeeded"}
        assert found == {name: texts[0] for name, texts in self.answered.items()}
        assert {row["custom_id"] for row in rows if row["match"] == "conflict"} == self.differing
        assert bool(tally.n_conflict) == bool(self.differing)

    @rule(take=st.sampled_from([Take.FIRST, Take.SECOND]))
    def take_one(self, take: Take) -> None:
        tally, rows = self.derived(take)
        counted = [row for row in rows if (row["match"], row["status"]) == ("matched", "succeeded")]
        wanted = {name: list(dict.fromkeys(texts)) for name, texts in self.answered.items()}
        at = -1 if take is Take.SECOND else 0
        assert {row["custom_id"]: row["text"] for row in counted} == {name: wanted[name][at] for name in wanted}
        assert not tally.n_conflict

    @rule()
    def take_none(self) -> None:
        tally, rows = self.derived(Take.NONE)
        assert tally.n_set_aside == len(self.differing)
        assert not self.differing & {row["custom_id"] for row in rows if row["match"] == "matched"}


TestDownloads = Downloads.TestCase
TestDownloads.settings = settings(max_examples=20, stateful_step_count=8, deadline=None)
