"""Batches that another tool made in the account of a small study, and taking them into its lake."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import openai
import polars as pl
import pytest

from batchpond.errors import UsageError
from batchpond.run.adopt import Adoption, MapOrder, adopt_mapped, adopt_own
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY, Rig

N = 12
CHAT = "/v1/chat/completions"
MODEL = "gpt-4.1-mini"
Row = dict[str, Any]


class Elsewhere:
    """Another tool in the same account: the official SDK, with ids of its own making."""

    def __init__(self, base_url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(transport=transport)
        self._sdk = openai.OpenAI(api_key="sk-test", base_url=base_url, http_client=self._http, max_retries=0)

    @classmethod
    def of(cls, rig: Rig) -> Elsewhere:
        """Return a tool that talks to a rig's simulator, past the wire that counts the lake's own calls."""
        return cls(SIMULATED["openai"].base_url, rig.wire._inner)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def ask(self, custom_ids: Sequence[str], bodies: Sequence[str], **metadata: str) -> str:
        """Send bodies as one batch and return its id."""
        lines = (
            f'{{"custom_id":{json.dumps(custom_id)},"method":"POST","url":"{CHAT}","body":{body}}}\n'
            for custom_id, body in zip(custom_ids, bodies, strict=True)
        )
        file = self._sdk.files.create(file=("theirs.jsonl", "".join(lines).encode()), purpose="batch")
        batch = self._sdk.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata=metadata or None
        )
        return batch.id


def new_rig(path: Path, **more: Any) -> Rig:
    return Rig(path, **({"max_requests": 50, "models": (MODEL,), "with_lens": False} | more))


def planned(rig: Rig) -> list[Row]:
    """Return the plan's rows with their prompts, and a custom_id for each that another tool might give."""
    columns = "slot, request_id, template_id, rubric_id, request_model, item_first, item_second, direction, repeat_no"
    sql = f"select {columns}, body from plan join requests using (request_id) order by slot"
    names = [*columns.replace("request_model", "p_model").split(", "), "body"]
    rows = rig.rows(sql.replace("request_model", "plan.request_model").replace(", repeat_no", ", plan.repeat_no"),
                    "plan", "requests")  # fmt: skip
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [row | {"custom_id": f"judge/{row['item_first']} vs {row['item_second']}"} for row in found]


def ask_elsewhere(elsewhere: Elsewhere, rows: Sequence[Row]) -> str:
    return elsewhere.ask([row["custom_id"] for row in rows], [row["body"] for row in rows], job="pilot")


def write_map(rig: Rig, rows: Sequence[Row], columns: Sequence[str], suffix: str = ".csv", name: str = "map") -> Path:
    """Write some columns of the rows as a map."""
    path = rig.path / f"{name}{suffix}"
    kept = [{column: row.get(column) for column in ("custom_id", *columns)} for row in rows]
    match suffix:
        case ".csv":
            with path.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, ("custom_id", *columns))
                writer.writeheader()
                writer.writerows(kept)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in kept))
        case ".parquet":
            pl.DataFrame(kept).write_parquet(path)
    return path


@contextmanager
def no_lens(rig: Rig) -> Iterator[None]:
    """Leave the views as they are, which saves most of the time, where the rig does so in other verbs."""
    with ExitStack() as patches:
        for module in () if rig.with_lens else ("batchpond.run.adopt", "batchpond.run.resolve"):
            patches.enter_context(patch(f"{module}.refresh", lambda _: False))
        yield


def adopt(
    rig: Rig, batch_id: str, path: Path, *, is_forced: bool = False, is_right: bool = True, provider: str = "openai"
) -> Adoption | None:
    """Run `adopt BATCH --map --yes` as a new process."""
    order = MapOrder(batch_id, provider, STUDY, path, is_forced)
    with rig._points(), no_lens(rig):
        return adopt_mapped(rig.store(), order, providers=rig.providers(), confirm=lambda _: is_right)


def finish(rig: Rig, n_passes: int = 1) -> None:
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    return f"{caught.value.message}\n{caught.value.hint}"


def own(rig: Rig, batch_id: str, provider: str = "openai") -> Adoption:
    """Run `adopt BATCH` as a new process."""
    with no_lens(rig):
        return adopt_own(rig.store(), batch_id, provider_name=provider, providers=rig.providers())
