"""The folder as a worker sees it: parts cover all requests, the inbox says what is answered, names appear once."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpond_work import WorkError
from batchpond_work.claims import Claims, Held, Inbox, is_error, row_of
from batchpond_work.folder import Folder
from batchpond_work.place import Batch, NotWholeError
from batchpond_work.settings import Settings
from batchpond_work.work import Stop, work

NAME = "batchpond1-x"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "outbox").mkdir()
    return Folder(tmp_path)


def put_batch(folder: Folder, lines: list[str], **manifest: object) -> Batch:
    """Put requests and their manifest into the outbox, and read them as a worker does."""
    data = "".join(f"{line}\n" for line in lines).encode()
    (folder.outbox / f"{NAME}.jsonl").write_bytes(data)
    known = {"batch": NAME, "model": "m", "sha256": hashlib.sha256(data).hexdigest()} | manifest
    (folder.outbox / f"{NAME}.manifest.json").write_text(json.dumps(known))
    return folder.batch(folder.manifest(NAME))


def line(custom_id: str, text: str = "") -> str:
    return json.dumps({"custom_id": custom_id, "body": {"text": text}})


def held(folder: Folder, batch: Batch, worker: str = "w") -> Held:
    """Return the batch's only part, held by a worker."""
    (part,) = batch.parts
    claims = Claims(folder, worker, 60.0)
    claim = claims.take(part.name)
    assert claim is not None
    return Held(folder, claims, claim, part, Inbox(folder, NAME), set(part.custom_ids), len(part.custom_ids))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=20), max_size=30), n_part=st.integers(1, 12))
def test_parts_are_the_requests_cut(folder: Folder, texts: list[str], n_part: int) -> None:
    """In order, each request in one part, none longer than the manifest says; a part's lines are those of the file."""
    lines = [line(f"r{number}", text) for number, text in enumerate(texts)]
    batch = put_batch(folder, lines, part_requests=n_part)
    assert [name for part in batch.parts for name in part.custom_ids] == [f"r{n}" for n in range(len(texts))]
    assert all(len(part.custom_ids) <= n_part for part in batch.parts)
    assert [text.decode() for part in batch.parts for text in part.lines().values()] == lines
    assert len({part.name for part in batch.parts}) == len(batch.parts) == -(-len(texts) // n_part)


def test_a_manifest_of_an_earlier_version_means_parts_of_a_thousand(folder: Folder) -> None:
    assert [len(part.custom_ids) for part in put_batch(folder, [line(f"r{n}") for n in range(1_001)]).parts] == [
        1_000,
        1,
    ]


@pytest.mark.parametrize("key", ["custom_id first", "last"])
def test_the_custom_id_is_found_wherever_it_stands(folder: Folder, key: str) -> None:
    """Also behind a body that names another."""
    body = {"body": {"custom_id": "wrong", "text": '{"custom_id":"wrong"}'}}
    row = {"custom_id": "right"} | body if key == "custom_id first" else body | {"custom_id": "right"}
    assert put_batch(folder, [json.dumps(row)]).parts[0].custom_ids == ("right",)


@pytest.mark.parametrize(
    "harm", ["cut", "changed", "twice", "no id", "gone", "other manifest", "later protocol", "no manifest"]
)
def test_what_is_not_the_file_of_its_manifest_is_left_alone(folder: Folder, harm: str) -> None:
    """A copy that is still growing, say, is no batch yet; nothing of it is asked."""
    put_batch(folder, [line("a"), line("b")])
    path = folder.outbox / f"{NAME}.jsonl"
    manifest = folder.outbox / f"{NAME}.manifest.json"
    match harm:
        case "cut":
            path.write_bytes(path.read_bytes()[:-9])
        case "changed":
            path.write_bytes(path.read_bytes().replace(b'"b"', b'"c"'))
        case "gone":
            path.unlink()
        case "no manifest":
            manifest.write_text("{")
    spoiled = {
        "twice": [line("a")] * 2,
        "no id": ['{"key": "a"}'],
        "other manifest": [line("a")],
        "later protocol": [line("a")],
    }
    more = {"other manifest": {"batch": "another"}, "later protocol": {"protocol": 3}}.get(harm, {})
    with pytest.raises(NotWholeError):
        put_batch(folder, spoiled[harm], **more) if harm in spoiled else folder.batch(folder.manifest(NAME))


def test_the_inbox_holds_whatever_a_whole_row_names(folder: Folder) -> None:
    """Any worker's files of that batch, zipped or not; no cut row, no other batch, nothing without its final name."""
    rows = {name: row_of(name, response={"status_code": 200, "body": {}}) for name in "abcdefg"}
    files = {
        f"{NAME}.jsonl": rows["a"] + rows["b"][:-9],
        f"{NAME}-p0000-w-0001.jsonl": rows["c"] + b"not json\n[]\n" + rows["d"],
        f"{NAME}.extra.jsonl.gz": gzip.compress(rows["e"]),
        f"{NAME}-cut.jsonl.gz": gzip.compress(rows["f"] * 1_000)[:-20],
        f"{NAME}y.jsonl": rows["g"],
        f".{NAME}-p0000-w-0002.jsonl.w.part": rows["g"],
        f"{NAME}.done": rows["g"],
    }
    for name, data in files.items():
        (folder.inbox / name).write_bytes(data)
    inbox = Inbox(folder, NAME)
    assert inbox.held() == set("acdef")
    (folder.inbox / f"{NAME}.jsonl").write_bytes(rows["b"])
    (folder.inbox / f"{NAME}.extra.jsonl.gz").unlink()
    assert inbox.held() == set("bcdf")


def test_of_all_who_put_a_file_one_does_and_it_is_whole(folder: Folder) -> None:
    """Nobody's bytes are mixed with another's, and no passing name is left."""
    path = folder.inbox / "name.jsonl"
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: folder.put(path, bytes([n]) * 100_000, f"w{n}"), range(8)))
    assert done.count(True) == 1
    assert path.read_bytes() == bytes([done.index(True)]) * 100_000
    assert [found.name for found in folder.inbox.iterdir()] == ["name.jsonl"]


def test_files_are_as_readable_as_their_folder(folder: Folder) -> None:
    folder.inbox.chmod(0o750)
    folder.put(folder.inbox / "a", b"", "w")
    assert (folder.inbox / "a").stat().st_mode & 0o777 == 0o640


def test_a_part_that_is_answered_is_one_file(folder: Folder) -> None:
    """Small files as answers come, one at the end, with every row once."""
    part = held(folder, put_batch(folder, [line(name) for name in "abc"]))
    rows = {name: row_of(name, error={"code": "x", "message": "y"}) for name in "abc"}
    (folder.inbox / f"{NAME}-p0000-dead-1-0001.jsonl").write_bytes(rows["a"])
    for name in "abc":
        part.take(name, rows[name])
        part.write()
    assert len(list(folder.inbox.iterdir())) == 4
    assert part.leave()
    (path,) = folder.inbox.iterdir()
    assert sorted(path.read_bytes().splitlines(keepends=True)) == sorted(rows.values())
    assert list(folder.claims.iterdir()) == []


def test_of_a_part_that_another_took_over_nothing_is_written(folder: Folder) -> None:
    """A worker that wakes up brings no second answer to anything: the other asks all that the inbox lacks."""
    batch = put_batch(folder, [line(name) for name in "abc"])
    sleeper = held(folder, batch)
    for path in folder.claims.iterdir():
        os.utime(path, (0, 0))
    other = held(folder, batch, "other")
    other.take("a", row_of("a", response={"status_code": 200, "body": {"by": "other"}}))
    other.write()
    for name in "ab":
        sleeper.take(name, row_of(name, response={"status_code": 200, "body": {"by": "sleeper"}}))
    assert not sleeper.leave()
    assert (sleeper.is_lost, sleeper.n_late) == (True, 2)
    lines = [json.loads(row) for path in folder.inbox.glob("*.jsonl") for row in path.read_bytes().splitlines()]
    assert [(row["custom_id"], row["response"]["body"]["by"]) for row in lines] == [("a", "other")]
    assert other.claims.holds(other.claim)


def test_who_sleeps_within_a_write_writes_nothing_either(folder: Folder) -> None:
    """It was allowed to, and had its file ready: whoever takes over sweeps that away before looking at the inbox."""
    slept = []

    def sleep() -> bool:
        folder.sweep(f"{NAME}-p0000")
        slept.append(True)
        return True

    path = folder.inbox / f"{NAME}-p0000-w-0001.jsonl"
    assert not folder.put(path, row_of("a"), "w", sleep)
    assert slept
    assert list(folder.inbox.iterdir()) == []


def test_what_a_dead_worker_did_not_join_is_joined(folder: Folder) -> None:
    """A part whose answers are all there, in small files, has one file after any worker has looked at it."""
    put_batch(folder, [line(name) for name in "abcd"], part_requests=2)
    for part, name in ((0, "a"), (0, "b"), (1, "c"), (1, "d")):
        (folder.inbox / f"{NAME}-p000{part}-dead-{name}.jsonl").write_bytes(row_of(name))
    tally = work(folder.path, Settings(engine="command: false {input} {output}"), lambda _: None, Stop())
    assert (tally.n_asked, tally.n_skipped, tally.exit_code) == (0, 4, 0)
    assert sorted(path.read_bytes().count(b"\n") for path in folder.inbox.iterdir()) == [2, 2]


def test_a_batch_that_was_ended_keeps_its_files(folder: Folder) -> None:
    """Whoever ended it may be reading: what came is written, and nothing is joined."""
    part = held(folder, put_batch(folder, [line(name) for name in "ab"]))
    for name in "ab":
        part.take(name, row_of(name))
        part.write()
    (folder.outbox / f"{NAME}.cancelled").touch()
    part.leave()
    assert len(list(folder.inbox.iterdir())) == 2
    assert list(folder.claims.iterdir()) == []


def test_rows_that_say_an_error_are_counted_as_errors() -> None:
    assert is_error(row_of("a", error={"code": "gave_up", "message": ""}))
    assert is_error(row_of("a", response={"status_code": 400, "body": {}}))
    assert not is_error(row_of("a", response={"status_code": 200, "body": {}}))


def test_a_folder_without_an_outbox_is_an_error_that_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="has no outbox") as raised:
        Folder(tmp_path)
    assert (raised.value.exit_code, "batchpond submit" in str(raised.value.hint)) == (2, True)
