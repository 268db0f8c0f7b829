"""What a study asks, read from the lake that planned it, by public doors alone: it outlives moves of modules."""

from __future__ import annotations

import functools
import gc
import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

import batchpond
from tests.golden import doors

HERE = Path(__file__).parent
STUDIES = HERE / "studies"
EXPECTED = HERE / "expected"
SIMULATED = (
    "--seed", "1", "--latency", "0", "0",
    "--judge", "*:position_bias=0.3,tie_rate=0.03,unparsed_rate=0.03,compliance_rate=0.7,flip_rate=0.3",
)  # fmt: skip
SHOWN_MAX = 200
SHOWN_OF_MORE = 20
SHOWN_OF_PLAN = 3
PASSES_MAX = 40
PLACE = (
    "stage", "task", "round_no", "mode", "template_id", "rubric_id", "provider", "endpoint", "request_model",
    "thinking", "unit_id", "item_first", "item_second", "candidate_first", "candidate_second", "turn_no", "direction",
    "is_lo_first", "repeat_no", "purpose", "tier", "request_id",
)  # fmt: skip
CELL = ("cell_id", "template_id", "rubric_id", "provider", "request_model", "thinking")
HASHED = ("pair_id", "template_hash", "rubric_hash", "item_first_hash", "item_second_hash", "parser_id")


def table(lake: Path, name: str) -> pl.DataFrame:
    """Return a table of a lake as any program reads it: all its Parquet files, each row once."""
    files = sorted((lake / name).rglob("*.parquet"))
    return pl.concat([pl.read_parquet(file, hive_partitioning=False) for file in files], how="diagonal")


def expected() -> dict[str, dict[str, Any]]:
    """Return what was written down, by study."""
    return {path.stem: json.loads(path.read_bytes()) for path in sorted(EXPECTED.glob("*.json"))}


def lake_names(name: str) -> dict[str, Any]:
    """Return a study's version and cells as a new lake names them.

    `renamed.json` has what differs from the record: one stage of pairs of a file's items has the cells and the items
    that it has without tiers or rounds. A lake that was planned before keeps its names (`test_old_lakes`).
    """
    renamed: dict[str, dict[str, Any]] = json.loads((HERE / "renamed.json").read_text("utf-8"))
    return {**expected()[name]["versions"], **renamed.get(name, {})}


@contextmanager
def desk(folder: Path, how: Callable[[str], str]) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Yield what gives, by a study's name, what it asks, sent as far as `how` says; a study is planned once."""
    with doors.simulating(folder / "simulator", *SIMULATED) as values, doors.environment(values):
        yield functools.cache(lambda name: asked(name, how(name), folder / name))


def how_recorded(name: str) -> str:
    """Return how far a study was sent when it was written down."""
    return str(expected()[name]["how"])


def finish(lake: batchpond.Lake, study: str) -> None:
    """Sync until all rounds of a study have been asked and answered."""
    for _ in zip(range(PASSES_MAX), doors.deadline(), strict=False):
        report = lake.sync()
        assert not report.n_attention
        counts = report.counts
        if not (report.n_pending or counts.n_created or counts.n_lines):
            return
    raise AssertionError(f"study {study} did not end in {PASSES_MAX} passes")


def asked(name: str, how: str, lake_path: Path) -> dict[str, Any]:
    """Plan a study of this folder, send it as far as `how` says, and return what it asks.

    `plan` sends nothing, `submit` and `files` what the first round asks, `finish` all rounds.
    """
    with warnings.catch_warnings():
        # A lake leaves its connections to the collector of garbage, which here comes before the simulator stops.
        warnings.simplefilter("ignore", ResourceWarning)
        _bring(batchpond.Lake(lake_path), name, how)
        gc.collect()
    # That another stage has a row's request too was not on record then; nothing is asked otherwise by it.
    plan = table(lake_path, "plan").with_columns(pl.col("^purpose$").replace("shared", None))
    return {
        "how": how,
        "requests": _shown(_requests(lake_path)),
        "plan": _shown(_rows(plan, PLACE), SHOWN_OF_PLAN),
        "lines": _shown(_lines(lake_path / "files" / "outbox")),
        "versions": {
            "study_versions": sorted(plan["study_version"].unique()),
            "cells": _shown(set(_rows(plan, CELL)), SHOWN_OF_PLAN),
            "plan": _shown(_rows(plan, (*PLACE, "cell_id", "study_version", *HASHED)), SHOWN_OF_PLAN)["sha256"],
        },
    }


def _bring(lake: batchpond.Lake, name: str, how: str) -> None:
    lake.plan(STUDIES / f"{name}.toml")
    if how == "plan":
        return
    study = table(lake.path, "studies")["study"][0]
    # The other lakes of the record ask the same at the same simulator. The commit that was recorded asked nobody.
    fresh = {"fresh": True} if "fresh" in inspect.signature(lake.submit).parameters else {}
    lake.submit(study, confirm=lambda _: True, **fresh)
    if how == "finish":
        finish(lake, study)


def _requests(lake: Path) -> list[str]:
    """Return each request's id, the part of custom_ids that names it (where a batch was made) and its body's digest."""
    keys: dict[str, str] = {}
    if (lake / "shard_requests").exists():
        keys = dict(table(lake, "shard_requests").select("request_id", "request_key").rows())
    bodies = table(lake, "requests").select("request_id", "body").rows()
    return [f"{request} {keys.get(request, '-')} {_sha256(body.encode())}" for request, body in bodies]


def _lines(outbox: Path) -> list[str]:
    """Return the digest of each line that was sent, its attempt left out, by the rest of its custom_id."""
    found = []
    for line in (line for file in outbox.glob("*.jsonl") for line in file.read_bytes().splitlines()):
        document = json.loads(line)
        attempt, _, key = (document.get("custom_id") or document["key"]).partition("-")
        found.append(f"{key} {_sha256(line.replace(attempt.encode(), b''))}")
    return found


def _rows(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    known = [column for column in columns if column in frame.columns]
    rows = frame.select(known).rows(named=True)
    return [json.dumps([row.get(column) for column in columns], ensure_ascii=False) for row in rows]


def _shown(lines: Iterable[str], n_max: int = SHOWN_MAX) -> dict[str, Any]:
    """Return lines in order, or the first of many, with the digest of them all."""
    ordered = sorted(lines)
    shown = ordered if len(ordered) <= n_max else ordered[: min(n_max, SHOWN_OF_MORE)]
    return {"n": len(ordered), "sha256": _sha256("\n".join(ordered).encode()), "first": shown}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
