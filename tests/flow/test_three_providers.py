"""One study file over three providers: 22 models and thinking levels x 5 templates x 2 directions, 16 pairs each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.views.read import rows
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import Rig

N_CELLS, N_PAIRS = 110, 16
N_REQUESTS = N_CELLS * N_PAIRS * 2
SYNC_EVERY_S = 1_800.0
SYNCS_MAX = 60
MODELS = {
    "openai": {
        "gpt-4.1": (), "gpt-4.1-mini": (), "gpt-4o-mini": (), "gpt-5.1": ("none", "low", "high"),
        "gpt-5.4-mini": ("none", "medium"),
    },
    "anthropic": {
        "claude-haiku-4-5": ("none", "medium"), "claude-sonnet-4-5": ("none", "4096"),
        "claude-opus-4-5": ("none", "low"),
        "claude-sonnet-4-6": ("high",),
    },
    "gemini": {
        "gemini-2.5-flash-lite": ("none", "low"), "gemini-2.5-flash": ("none", "2048"), "gemini-2.5-pro": ("medium",),
        "gemini-3-flash-preview": ("minimal", "high"),
    },
}  # fmt: skip
STUDY = """
study = "demo"
seed = 11
[items]
path = "items.jsonl"
[pairs]
count = 16
order = "random"
reverse = 1.0
[[rubrics]]
use = "overall_quality"
[shards]
per_cell = true
[retry]
max_attempts = 4
"""
FAULTS = (
    "batches.create@3:reset_after", "batches.create@9:html=502", "batches.create@17:status=429",
    "batches.create@30:delay_exec=400", "batches.create@45:hang_after=700", "batches.create@60:expire=0.5",
    "batches.create@71:expire_bare", "batches.create@80:enqueued", "batches.list@4:list_error_page=1",
    "batches.list@7:html=200", "files.content@5:truncate=0.4", "files.content@12:status=404",
    "files.content@20:reset_at=900", "files.upload@3:cut_upload=900", "lines@8:error_rows=4", "lines@25:error_rows=5",
    "lines@40:duplicate=3", "lines@41:bom", "lines@50:crlf", "*@60-63:status=500",
)  # fmt: skip


def write_grid(folder: Path) -> Path:
    """Write the study and its items; returns the path of study.toml."""
    folder.mkdir(parents=True)
    texts = ({"id": f"i{n:02d}", "text": f"Essay number {n}. [[quality=0.{n:02d}]]"} for n in range(1, 21))
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in texts))
    tables = [f'[[templates]]\nuse = "{name}"\n' for name in
              ("concise", "order_warned", "plain", "rubric_first", "step_by_step")]  # fmt: skip
    for provider, models in MODELS.items():
        for model, thinking in models.items():
            levels = f"thinking = {json.dumps(thinking)}\n" if thinking else ""
            tables.append(
                f'[[models]]\nprovider = "{provider}"\nmodel = "{model}"\n{levels}max_output_tokens = 20000\n'
            )
    path = folder / "study.toml"
    path.write_text(STUDY + "".join(tables))
    return path


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """The grid, planned, at providers that fail in many ways."""
    rig = Rig(tmp_path / "rig", Settings(seed=5, latency_s=(600.0, 7_200.0)))
    rig.study_path = write_grid(tmp_path / "grid")
    rig.plan()
    yield rig
    rig.world.close()


def test_the_whole_grid_is_asked_answered_and_accounted_for(rig: Rig) -> None:
    assert sum(max(1, len(levels)) for models in MODELS.values() for levels in models.values()) == 22
    for fault in FAULTS:
        rig.world.add_fault(fault)
    rig.with_lens = False
    rig.submit()
    for _ in range(SYNCS_MAX):
        rig.clock.advance(SYNC_EVERY_S)
        rig.with_lens = not rig.sync().n_pending
        if rig.with_lens:
            rig.clock.advance(SYNC_EVERY_S)
            if not rig.sync().n_pending:
                break
    assert rig.violations() == []
    coverage = rows(rig.lake, "coverage", order=("provider", "request_model", "thinking", "template_id"))
    assert len(coverage) == N_CELLS
    assert {row["n_planned"] for row in coverage} == {2 * N_PAIRS}
    n_open = sum(row["n_planned"] - row["n_answered"] for row in coverage)
    assert n_open <= 3, "only what the providers called wrong (400) is left unanswered"
    assert sum(row["n_failed"] for row in coverage) == n_open
    audit = rows(rig.lake, "audit", order=("attempt_id",))
    settled = [row for row in audit if row["attempt_state"] in {"verified", "mismatch", "lost"}]
    assert len(settled) >= N_CELLS
    assert [row for row in settled if not row["is_balanced"]] == []
    consistency = rows(rig.lake, "report_consistency", order=("provider", "request_model", "thinking", "template_id"))
    assert len(consistency) == N_CELLS
    assert all(row["n_pairs"] >= N_PAIRS - 3 for row in consistency)
    assert N_REQUESTS - n_open <= rig.billed()[0] <= N_REQUESTS
