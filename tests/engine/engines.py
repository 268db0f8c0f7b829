"""Real engines that answer chat completions, started on a loopback port with a model of noise.

The engines live in environments of their own, since they are large: `tests/engine/install.sh` makes one, and
BATCHPOND_ENGINE_PYTHON names its interpreter, or several with a colon between. Where it is not set, or none
has an engine, tests skip and say how to get it.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.engine import tiny_gguf, tiny_model

VARIABLE: Final = "BATCHPOND_ENGINE_PYTHON"
MODEL: Final = "noise"
CONTEXT_TOKENS: Final = 4096
_START_S, _STOP_S = 180.0, 20.0
_LOG_BYTES: Final = 4_000
# Nothing may be asked of a hub, nor told to anybody.
_ALONE: Final = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
VLLM_FLAGS: Final = (
    "--model", MODEL, "--served-model-name", MODEL, "--max-model-len", str(CONTEXT_TOKENS),
    "--dtype", "float32", "--enforce-eager",
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """How to start an engine with its interpreter; PORT among the `flags` stands for the port.

    `takes_any_model` says that it answers whatever model is asked for; `ready` is what answers when it is up.
    """

    name: str
    package: str
    flags: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: str = "/health"
    takes_any_model: bool = False


@dataclass(frozen=True)
class Running:
    """An engine that answers: its OpenAI base URL, and the name of its only model."""

    engine: Engine
    base_url: str
    model: str = MODEL


TRANSFORMERS: Final = Engine(
    "transformers", "transformers",
    ("-m", "transformers.cli.transformers", "serve", MODEL, "--host", "127.0.0.1", "--port", "PORT", "--device", "cpu"),
)  # fmt: skip
VLLM: Final = Engine(
    "vllm", "vllm",
    ("-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", "PORT", *VLLM_FLAGS),
    {"VLLM_CPU_KVCACHE_SPACE": "1"},
)  # fmt: skip
LLAMACPP: Final = Engine(
    "llamacpp", "llama_cpp",
    ("-m", "llama_cpp.server", "--model", f"{MODEL}.gguf", "--model_alias", MODEL, "--n_ctx", str(CONTEXT_TOKENS),
     "--n_threads", "1", "--n_threads_batch", "1", "--host", "127.0.0.1", "--port", "PORT"),
    ready="/v1/models", takes_any_model=True,
)  # fmt: skip
ENGINES: Final = (TRANSFORMERS, LLAMACPP, VLLM)


def interpreter(engine: Engine) -> str:
    """Return the interpreter that has the engine, or skip the test and say how to get it."""
    named = [python for python in os.environ.get(VARIABLE, "").split(os.pathsep) if python]
    found = next((python for python in named if _has(python, engine.package)), None)
    if found is None:
        why = f"none of {VARIABLE} has {engine.package}" if named else f"{VARIABLE} is not set"
        how = f"bash tests/engine/install.sh .venv-engine {engine.name}"
        pytest.skip(f"{engine.name} was not asked: {why} (to install it: {how})")
    return found


def lay_models(folder: Path) -> None:
    """Write the model of noise into a folder, in each of the forms that engines load."""
    tiny_model.make(folder / MODEL)
    tiny_gguf.make(folder / f"{MODEL}.gguf")


def environment(engine: Engine, folder: Path) -> dict[str, str]:
    """Return what an engine's process is started with; its caches stay inside the folder."""
    (folder / "hub").mkdir(exist_ok=True)  # `transformers serve` fails to list its models without
    caches = {
        "HF_HOME": os.fspath(folder),
        "HF_HUB_CACHE": os.fspath(folder / "hub"),
        "VLLM_CONFIG_ROOT": os.fspath(folder),
    }
    return os.environ | _ALONE | caches | dict(engine.environment)


@contextmanager
def running(engine: Engine, folder: Path) -> Iterator[Running]:
    """Run an engine with a model of noise until the block ends; it and its children are gone then."""
    python, port = interpreter(engine), _free_port()
    lay_models(folder)
    arguments = [python, *(str(port) if flag == "PORT" else flag for flag in engine.flags)]
    log = folder / f"{engine.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=folder, env=environment(engine, folder), stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        _wait(process, f"http://127.0.0.1:{port}{engine.ready}", log)
        yield Running(engine, f"http://127.0.0.1:{port}/v1")
    finally:
        stop(process)


def run(engine: Engine, folder: Path, *arguments: str, deadline_s: float) -> str:
    """Run a program of the engine's interpreter to its end; returns what it said, raises when it failed or hung."""
    process = subprocess.Popen(
        [interpreter(engine), *arguments], cwd=folder, env=environment(engine, folder), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=deadline_s)
    finally:
        stop(process)
    assert process.returncode == 0, said[-_LOG_BYTES:]
    return said


def stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process and its children, asking first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)  # what it left behind, in the session that was made for it
    except ProcessLookupError:
        return


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    said = log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")
    raise AssertionError(f"{url} does not answer, exit status {process.poll()}: {said}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@functools.cache
def _has(python: str, package: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code], check=False, timeout=60).returncode == 0
