"""A planned study version: its settings, read back from the lake, what of it is asked, and its shards.

Shards are cut from tables of Arrow, a row per request, with its `request_id`, `size_bytes` of the body,
`estimated_input_tokens`, and `group`: the text that all rows of a shard share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from msgspec import Raw
from msgspec.json import decode

from batchpond.errors import UsageError
from batchpond.lake import tables
from batchpond.lake.attempts import LakeState
from batchpond.lake.disk import read_rows, relative
from batchpond.lake.records import Asked
from batchpond.lake.schemas import STUDIES
from batchpond.lake.store import Memo, Store, keep_memo, recall_memo
from batchpond.model import ErrorClass, Mode
from batchpond.providers import registry
from batchpond.providers.base import Descriptor
from batchpond.providers.http.keys import origin_of
from batchpond.study.prices import ANSWERS_LEAST, Length, Lengths, Usage, Used, load_config
from batchpond.text import did_you_mean

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MEMO: Final = ".studies"
UNLIMITED: Final = 1_000
_COLUMNS: Final = ("config", "n_requests", "parsers")
_LAYOUT: Final = " ".join(_COLUMNS)


@dataclass(frozen=True, slots=True)
class Again:
    """Which requests that were asked before are asked once more: all, or those that failed in these ways.

    `max_attempts` counts the batches that a request was ever in; what has been answered is asked again only
    when no `classes` are given.
    """

    classes: frozenset[ErrorClass] | None = None
    max_attempts: int = UNLIMITED


def sampled(n_requests: int | None) -> str:
    """Return the SQL of those requests of `wanted` that belong to a sample of so many, or of all."""
    return "SELECT * FROM wanted" if n_requests is None else tables.query(__package__, "sampled", n=f"{n_requests:d}")


def sample_of(lake_state: LakeState, study: str) -> int | None:
    """Return of how many requests the sample is that is approved of a study's present plan, None where it is none."""
    approval = lake_state.approvals.get(study)
    if approval is None or approval.study_version != lake_state.current_versions.get(study):
        return None
    return approval.n_limit


_REACHED: Final = tables.query(__package__, "reached")


def study_settings(store: Store, version: str, *, is_whole: bool = False) -> dict[str, Any]:
    """Return what a version was planned with: its rubrics, of which there may be thousands, only if `is_whole`."""
    raw = decode(study_column(store, version, "config") or "{}", type=dict[str, Raw])
    stages = decode(raw.pop("stages", b"[]"), type=list[dict[str, Raw]])
    own, *found = ({name: decode(one[name]) for name in one if is_whole or name != "rubrics"} for one in (raw, *stages))
    return own | {"stages": found}


def study_column(store: Store, version: str, column: str) -> Any:
    """Return a column of a planned study version, None where there is no such plan."""
    known = _KNOWN.get(store) or _studies(store)
    if version not in known:
        known = _studies(store)
    return known.get(version, {}).get(column)


def parsers(store: Store) -> dict[str, dict[str, Any]]:
    """Return the answer rules of all planned studies, by parser id."""
    specs: dict[str, dict[str, Any]] = {}
    for columns in _studies(store).values():
        specs.update(decode(columns["parsers"]))
    return specs


def keep(store: Store) -> None:
    """Keep what the planned versions say for the next pass to read in one go; the lake's lock is held."""
    paths = relative(store.path, store.published(STUDIES.name))
    kept = recall_memo(store, MEMO, _LAYOUT)
    if kept is None or kept.names != paths:
        keep_memo(store, MEMO, Memo(_LAYOUT, paths, paths, _studies(store)))


def written_ns(store: Store, study: str) -> int:
    """Return when a study was planned, in ns as its file's time; 0 where it was not, or in several versions."""
    with suppress(OSError), os.scandir(store.path / STUDIES.name / f"p_study={study}") as files:
        times = [file.stat().st_mtime_ns for file in files]
        return times[0] if len(times) == 1 else 0
    return 0


# What a version says never changes, and a pass asks for it study by study.
_KNOWN: Final = WeakKeyDictionary[Store, dict[str, dict[str, Any]]]()


def _studies(store: Store) -> dict[str, dict[str, Any]]:
    kept = recall_memo(store, MEMO, _LAYOUT)
    found, names = ({}, []) if kept is None else (kept.content, kept.names)
    new = {*relative(store.path, store.published(STUDIES.name))}.difference(names)
    _KNOWN[store] = found | _read(store.path / name for name in sorted(new))
    return _KNOWN[store]


def _read(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return the columns that are asked for of each version; no two files have one in common."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for row in read_rows(path, ["study_version", *_COLUMNS]).to_pylist():
            found.setdefault(row["study_version"], {column: row[column] for column in _COLUMNS})
    return found


def caches(store: Store, version: str) -> dict[tuple[str, str], str]:
    """Return how long a cache is to keep what bodies mark, by the providers and models that a version says it of."""
    settings = study_settings(store, version)
    models = (model for part in (settings, *settings.get("stages", ())) for model in part.get("models") or ())
    return {(model["provider"], model["model"]): model["cache"] for model in models if model.get("cache")}


def marked(store: Store, asked: Asked) -> Callable[[bytes], bytes]:
    """Return what puts into bodies of a shard the marks that its study wants."""
    cache = caches(store, asked.study_version).get((asked.provider, asked.request_model))
    return bytes if cache is None else partial(registry.module(asked.provider).marked, cache=cache)


def lengths(store: Store, version: str) -> Lengths:
    """Return how long answers of each stage and template were expected to be when the version was planned."""
    settings = study_settings(store, version)
    # An earlier version has what its file said of a stage alone.
    said = ((one, one.get("expected_output_tokens")) for one in settings.get("stages") or ())
    told = [(one["name"], template[0], n, True) for one, n in said if n for template in one["templates"]]
    told = settings.get("lengths", told)
    return {(stage, template_id): Length(tokens, is_whole) for stage, template_id, tokens, is_whole in told}


def used(store: Store, connection: duckdb.DuckDBPyConnection, study: str, version: str) -> Used:
    """Return what the study's answers used of each way that this version asks in, where they are many enough."""
    if not connection.execute("SELECT count(*) FROM (FROM responses LIMIT 1)").fetchall()[0][0]:
        return {}  # to plan the query below takes longer than most submits of a lake without answers
    rows = connection.execute("SELECT DISTINCT provider FROM plan WHERE study_version = ?", [version]).fetchall()
    environ = os.environ | load_config(store.path).variables
    known = [one for (name,) in rows if not (one := registry.module(name).DESCRIPTOR).is_free]
    places = {one.name: origin_of(environ.get(one.base_url_env) or one.default_base_url) for one in known}
    simulated = [name for name, place in places.items() if place and place.is_loopback]  # as answers of this machine
    values = {"study": study, "version": version, "least": ANSWERS_LEAST, "simulated": simulated}
    rows = connection.execute(tables.query(__package__, "used"), values).fetchall()
    return {tuple(row[:5]): Usage(*row[5:]) for row in rows}


def later_cost(store: Store, version: str, shares: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Return what these shares of later rounds may cost: expected, and at worst, in USD; None is unknown."""
    later = study_settings(store, version).get("later") or {}
    totals: list[float | None] = []
    for key in ("expected_usd", "worst_usd"):
        costs = [(later[name][key], share) for name, share in shares.items() if share]
        totals.append(None if any(usd is None for usd, _ in costs) else sum((usd * share for usd, share in costs), 0.0))
    return totals[0], totals[1]


def later_shares(store: Store, version: str, n_again: int = 0, sample: int | None = None) -> dict[str, float]:
    """Return which share of its later rounds each stage that has such is still to plan.

    What is asked once more, `n_again` requests, may lead to as large a share of all later rounds again, and so may
    what is asked from the start and in no shard yet; but rounds that answers choose are chosen once. Of a `sample` of
    so many requests only its share follows.
    """
    settings = study_settings(store, version)
    later: dict[str, dict[str, Any]] = settings.get("later") or {}
    if not later:
        return {}
    rows = tables.rows(store, ["plan", "shard_requests"], _REACHED, [version])
    reached: dict[str, int] = {stage: turn_no for stage, turn_no, *_ in rows}
    n_first = max(1, sum(row[2] for row in rows))
    n_sample = n_first if sample is None else min(sample, n_first)
    n_fresh = max(0, n_sample - sum(row[3] for row in rows))
    share_again = min(1.0, (n_again + n_fresh) / n_first)
    stages: list[dict[str, Any]] = settings.get("stages") or []
    chosen_once = {stage["name"] for stage in stages if stage["pairs"].get("adaptive")}
    shares = {
        name: max(
            0.0 if name in chosen_once else share_again,
            1 - reached[name] / found["n_rounds"] if found["n_rounds"] and name in reached else 0.0,
        )
        for name, found in later.items()
    }
    over = _passed(stages, reached)
    return shares | {name: share_again if name in over else n_sample / n_first for name in later if name not in reached}


def _passed(stages: Iterable[Mapping[str, Any]], reached: Iterable[str]) -> set[str]:
    """Return the stages that have ended, by what is planned: those that one which waited for them was planned after.

    A further round of making inputs may have ended so without a row, since none was needed.
    """
    found = set(reached)
    for stage in reversed(list(stages)):
        rows = stage["rows"]
        rated = rows.get("kept") or rows.get("lacking") or {}
        if stage["name"] in found:
            found |= {rows.get("stage") or "", *rows.get("after", ()), *rated.get("ratings", ())}
    return found


def planned_version(lake_state: LakeState, study: str) -> str:
    """Return the version that a study is planned in now; raises UsageError for a study without a plan."""
    version = lake_state.current_versions.get(study)
    if version is None:
        known = ", ".join(sorted(lake_state.current_versions)) or "none"
        file = study if study.endswith(".toml") else "FILE"
        raise UsageError(
            f"no plan for study {study!r} in this lake (planned: {known})",
            hint=did_you_mean(study, lake_state.current_versions, f"`batchpond plan {file}` plans what stands in it"),
        )
    return version


def automatic_again(store: Store, version: str) -> Again | None:
    """Return which failures a planned study lets `sync` ask again by itself, None where it says nothing."""
    wishes = study_settings(store, version).get("retry") or {}
    if not wishes.get("is_automatic"):
        return None
    return Again(frozenset(ErrorClass(name) for name in wishes["classes"]), wishes["max_attempts"])


def study_budget_usd(store: Store, version: str) -> float | None:
    """Return what a study may cost over its whole life, or None where it does not say."""
    budget: float | None = (study_settings(store, version).get("budget") or {}).get("max_cost_usd")
    return budget


FIRST: Final = 1  # the tier of what has none

# {"custom_id":"...31...","method":"POST","url":"/v1/chat/completions","body":} and a line feed, with room.
LINE_OVERHEAD_BYTES: Final = 256
OWN_REQUESTS_MAX: Final = 50_000
OWN_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one shard may hold; `line_overhead_bytes` is added to each body."""

    max_requests: int
    max_bytes: int
    max_tokens: int | None = None
    line_overhead_bytes: int = LINE_OVERHEAD_BYTES


def limits_of(
    provider: Descriptor, mode: Mode, max_requests: int | None = None, max_tokens: int | None = None
) -> Limits:
    """Return the limits of a provider's shards, and the study's where it is stricter.

    No provider's queue holds live calls and files, so that only our own limits bind them.
    """
    if mode is not Mode.BATCH:
        return Limits(min(max_requests or OWN_REQUESTS_MAX, OWN_REQUESTS_MAX), OWN_BYTES_MAX)
    n_requests = min(max_requests or provider.max_requests, provider.max_requests)
    return Limits(n_requests, provider.max_bytes, max_tokens)


def split(rows: pa.Table, limits: Limits) -> Iterator[pa.Table]:
    """Yield shards, each as full as the limits allow, in the order of the rows.

    Raises UsageError for a single row that no shard can hold.
    """
    import numpy as np  # an idle pass cuts nothing

    sizes, tokens = (np.asarray(rows[name], np.int64) for name in ("size_bytes", "estimated_input_tokens"))
    totals = [(np.cumsum(sizes + limits.line_overhead_bytes), limits.max_bytes)]
    totals += [] if limits.max_tokens is None else [(np.cumsum(tokens), limits.max_tokens)]
    start = 0
    while start < len(rows):
        ends = [int(total.searchsorted(most + (total[start - 1] if start else 0), "right")) for total, most in totals]
        stop = min(start + limits.max_requests, len(rows), *ends)
        if stop == start:
            check_line(rows["request_id"][start].as_py(), int(sizes[start]), int(tokens[start]), limits)
        yield rows.slice(start, stop - start)
        start = stop


def check_line(request_id: str, size_bytes: int, estimated_input_tokens: int, limits: Limits) -> None:
    """Raise UsageError when no shard can hold a request."""
    line_bytes = size_bytes + limits.line_overhead_bytes
    if line_bytes > limits.max_bytes:
        raise UsageError(
            f"request {request_id} takes {line_bytes:,} bytes; one batch holds {limits.max_bytes:,}",
            hint="shorten the longest items",
        )
    if limits.max_tokens is not None and estimated_input_tokens > limits.max_tokens:
        raise UsageError(
            f"request {request_id} takes about {estimated_input_tokens:,} input tokens; "
            f"the provider's queue holds {limits.max_tokens:,}",
            hint="shorten the longest items, or correct the limit in the lake's config.toml",
        )


def split_segments(rows: pa.Table, n_segments: int, limits: Limits) -> Iterator[pa.Table]:
    """Yield shards of equal size, what is over first: 5 in 3 is 2, 2, 1; one that breaks a limit is split further."""
    size, rest = divmod(len(rows), n_segments)
    for number in range(n_segments if size else rest):
        start = number * size + min(number, rest)
        yield from split(rows.slice(start, size + (number < rest)), limits)


def cut(
    parts: Iterable[pa.Table], limits: Callable[[pa.Table], Limits], n_segments: int | None = None
) -> Iterator[pa.Table]:
    """Yield the shards of rows that come in parts, group by group; no shard spans two groups.

    `limits` gives those of a group by rows of it. No more is held than a part and a shard or, for segments, a group.
    Raises ValueError when a group comes back.
    """
    import pyarrow as pa  # an idle pass cuts nothing

    done, held, own, last = set[str](), list[pa.Table](), Limits(0, 0), None
    for rows in (run for part in parts for run in _runs(part)):
        group = rows["group"][0].as_py()
        if group != last:
            yield from _rest(held, own, n_segments)
            if group in done:
                raise ValueError(f"rows are not sorted by group: {group!r} comes back")
            done.add(group)
            held, own, last = [], limits(rows), group
        held.append(rows)
        if n_segments is None:  # all but the last shard are full
            shards = split(pa.concat_tables(held), own)
            held = [next(shards)]
            for shard in shards:
                yield held.pop()
                held.append(shard)
    yield from _rest(held, own, n_segments)


def _rest(held: list[pa.Table], limits: Limits, n_segments: int | None) -> Iterable[pa.Table]:
    import pyarrow as pa

    return held if n_segments is None or not held else split_segments(pa.concat_tables(held), n_segments, limits)


def _runs(part: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each group of a part."""
    import pyarrow.compute as pc

    start = 0
    for stop in pc.run_end_encode(part["group"].combine_chunks()).run_ends.to_pylist() if len(part) else ():
        yield part.slice(start, stop - start)
        start = stop
