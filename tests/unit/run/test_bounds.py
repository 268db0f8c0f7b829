"""What answers hold cannot take the memory, the disk or the budget of whoever collects them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchpond import ids
from batchpond.answers import derive
from batchpond.lake import jsonl
from batchpond.lake.disk import read_rows
from batchpond.lake.jsonl import RawFile, publish_raw, shard_file_name
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.model import FileRole
from batchpond.providers import registry
from batchpond.providers.shared import folder as files

ATTEMPT = ids.attempt_id("lake", "shard", 1)
REQUESTS = [ids.digest("request", n) for n in range(3)]
NAMES = [ids.custom_id(ATTEMPT, request_id) for request_id in REQUESTS]


def answer(name: str, text: str, **usage: int) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": "c", "model": "m", "choices": [choice], "usage": usage}
    return json.dumps({"custom_id": name, "response": {"status_code": 200, "body": body}, "error": None}).encode()


def planned(folder: Path) -> Store:
    """Return a lake with a shard of three requests."""
    store = Store.init(folder / "lake")
    empty = dict.fromkeys(SHARD_REQUESTS.schema.names)
    rows = [
        empty | {"shard_id": "shard", "line_number": n, "request_id": r, "request_key": r, "requests_file": "f"}
        for n, r in enumerate(REQUESTS, 1)
    ]
    store.publish(SHARD_REQUESTS, shard_file_name("openai", "shard"), rows)
    return store


def take_in(store: Store, path: Path) -> None:
    """Bring a download into the lake and read it."""
    file = RawFile("openai", "batch", ATTEMPT, "out", FileRole.OUTPUT, "0" * 64, created_at=None)
    publish_raw(store, file, path)
    source = derive.Source("shard", ATTEMPT, ATTEMPT, "openai", "batch", (file,), None)
    derive.derive(store, source, {}, lambda _: None)


def derived(folder: Path, lines: list[bytes]) -> list[dict[str, Any]]:
    """Bring lines in as a download, and return what is read of them, by line."""
    store, path = planned(folder), folder / "download"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    take_in(store, path)
    return [row for path in store.files("responses") for row in read_rows(path).to_pylist()]


@pytest.mark.parametrize("n_tokens", [2**63 - 1, derive.TOKENS_MAX + 1])
def test_usage_beyond_sense_is_unknown(tmp_path: Path, n_tokens: int) -> None:
    """F078, defect 2.7: no answer has so many tokens: the count is unknown, and so the cost; its neighbour's stands."""
    lines = [answer(NAMES[0], "a", prompt_tokens=5, completion_tokens=n_tokens),
             answer(NAMES[1], "b", prompt_tokens=5, completion_tokens=7)]  # fmt: skip
    first, second = derived(tmp_path, lines)
    assert (first["output_tokens"], first["input_tokens"], first["text"]) == (None, 5, "a")
    assert second["output_tokens"] == 7


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "not UTF-8"])
def test_a_line_longer_than_any_answer_is_an_error_of_its_request(tmp_path: Path, is_text: bool) -> None:
    """F069: the request that it names failed, its neighbours are answered, and raw has every byte of it."""
    filler = b"x" if is_text else b"\xff"
    long = answer(NAMES[1], "MARK").replace(b"MARK", filler * (derive.LINE_BYTES_MAX + 1))
    rows = derived(tmp_path, [answer(NAMES[0], "a"), long, answer(NAMES[2], "c")])
    assert [(row["custom_id"], row["match"], row["status"]) for row in rows] == [
        (NAMES[0], "matched", "succeeded"), (NAMES[1], "matched", "unreadable"), (NAMES[2], "matched", "succeeded"),
    ]  # fmt: skip
    (raw,) = Store.open(tmp_path / "lake").files("raw")
    kept = read_rows(raw).to_pylist()[1]
    assert (kept["line"] or "").encode() + (kept["line_bytes"] or b"") == long


def measured(code: str, folder: Path) -> tuple[str, int]:
    """Run code that knows `folder` in a process of its own: what it printed, and by how many bytes its memory grew.

    What is imported by this module counts as there before: the growth is the work's alone.
    """
    around = (
        "import resource, sys; from pathlib import Path; import tests.unit.run.test_bounds; folder = Path(sys.argv[1]);"
        " most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024; before = most();"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{around} {code}; print(most() - before)", str(folder)],
        capture_output=True, text=True, timeout=120, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    *told, grown_bytes = done.stdout.splitlines()
    return "\n".join(told), int(grown_bytes)


def test_the_memory_for_a_giant_line_does_not_grow_with_it(tmp_path: Path) -> None:
    """Defect 4.4: 200 MB in one line took twelve times as much; what is too long to keep is never held whole."""
    n_bytes = 300 << 20
    planned(tmp_path)
    start, _, end = answer(NAMES[0], "MARK").partition(b"MARK")
    with (tmp_path / "download").open("wb") as download:
        download.write(start)
        download.writelines(b"x" * (1 << 20) for _ in range(n_bytes >> 20))
        download.write(end + b"\n")
    run = "from batchpond.lake.store import Store; take_in(Store.open(folder / 'lake'), folder / 'download')"
    _, grown_bytes = measured(f"from tests.unit.run.test_bounds import take_in; {run}", tmp_path)
    assert grown_bytes < n_bytes / 2, f"{grown_bytes >> 20} MiB"


def test_of_a_line_that_is_too_long_to_keep_its_ends_and_digest_are_kept(tmp_path: Path) -> None:
    """Raw says how long it was and its sha256; its request failed, and its neighbours are answered."""
    long = answer(NAMES[1], "MARK").replace(b"MARK", b"x" * jsonl.LINE_KEPT_BYTES_MAX)
    rows = derived(tmp_path, [answer(NAMES[0], "a"), long, answer(NAMES[2], "c")])
    assert [(row["custom_id"], row["line_number"], row["status"]) for row in rows] == [
        (NAMES[0], 1, "succeeded"), (NAMES[1], 2, "unreadable"), (NAMES[2], 3, "succeeded"),
    ]  # fmt: skip
    assert f"the line has {len(long):,} bytes" in rows[1]["error_message"]
    assert "raw keeps its ends and its sha256" in rows[1]["error_message"]
    (raw,) = Store.open(tmp_path / "lake").files("raw")
    kept = read_rows(raw).to_pylist()[1]["line_bytes"]
    assert kept.startswith(long[: jsonl.LINE_END_BYTES])
    assert kept.endswith(long[-jsonl.LINE_END_BYTES :])
    assert jsonl.CUT % (len(long), hashlib.sha256(long).hexdigest().encode()) in kept


def answers_in_folder(folder: Path) -> tuple[int, int]:
    """Count the answers of the one file in an inbox, as a pass over a folder does."""
    path = folder / "inbox"
    status = path.stat()
    part = files.Part(path, status.st_size, status.st_mtime_ns)
    return files.read_answers([part], registry.module("openai").read_line, ids.custom_id_prefix(ATTEMPT))


def test_counting_the_answers_of_a_folder_holds_no_giant_line(tmp_path: Path) -> None:
    """Mode files: its request failed, its neighbours are counted, and the memory does not grow with the line."""
    n_bytes = 300 << 20
    start, _, end = answer(NAMES[0], "MARK").partition(b"MARK")
    with (tmp_path / "inbox").open("wb") as inbox:
        inbox.write(answer(NAMES[1], "b") + b"\n" + start)
        inbox.writelines(b"x" * (1 << 20) for _ in range(n_bytes >> 20))
        inbox.write(end + b"\n" + answer(NAMES[2], "c"))
    told, grown_bytes = measured(
        "from tests.unit.run.test_bounds import answers_in_folder; print(*answers_in_folder(folder))", tmp_path
    )
    n_succeeded, n_failed = map(int, told.split())
    assert (n_succeeded, n_failed) == (2, 1)
    assert grown_bytes < n_bytes / 2, f"{grown_bytes >> 20} MiB"


def test_lines_with_long_tables_of_probabilities_are_read_a_bounded_number_of_bytes_at_once(tmp_path: Path) -> None:
    """However many there are; each is read, in its place."""
    store, path = planned(tmp_path), tmp_path / "download"
    name = NAMES[0]
    lines = [answer(name, f"{n}".rjust(1_000_000)) for n in range(100)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    take_in(store, path)
    (raw,) = store.files("raw")
    pieces = list(derive._raw_lines(raw))
    assert [first for _, first in pieces] == [
        1 + sum(len(some) for some, _ in pieces[:at]) for at in range(len(pieces))
    ]
    assert max(sum(map(len, some)) for some, _ in pieces) < 2 * derive.LINE_BYTES_MAX
    assert [line for some, _ in pieces for line in some] == lines
