"""Whole runs side by side with other batch tools: the same server, as many requests, interleaved, by CPU and by wall.

    python -m tests.bench.peers [N] [--runs 5] [--environments FOLDER]

The peers' drivers and the server are read from `../shared/bench/peers`; each tool has an environment of its own, made
once in FOLDER (default `.peers`), batchpond's from this checkout. One that cannot be made is named and left out:
batchor wants Python 3.12, so FOLDER/batchor is made by hand where Python is older. batchpond keeps every line and
answers SQL at the end; the fastest peers keep nothing. Studies of three tasks, each in one process (`run`) and in three
(`plan`, `submit`, `sync`), and the first run of a new HOME. Limits, for each task: CPU and wall of one process 1.0
times the fastest peer at 10,000 requests and 0.6 times at 100,000, three processes 1.5 times at 10,000, peak memory
300 MB. Exits 1 where one is passed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parents[2]
PEERS = HERE.parent / "shared" / "bench" / "peers"
SIZE = 10_000
RUNS = 5
PORT = 8765
TIMEOUT_S = 900
PEAK_MAX_MB = 300.0
PACKAGES = {
    "floor": ["orjson", "duckdb", "polars"], "langbatch": ["langbatch"], "litellm": ["litellm"],
    "llmbatchpy": ["llm-batch-py"], "batchor": ["batchor"], "bp": [str(HERE)],
}  # fmt: skip
OTHERS = ("langbatch", "litellm", "llmbatchpy", "batchor")
TASKS = ("prompts", "pairwise", "compliance")
MODELS = '[[models]]\nprovider = "openai"\nmodel = "gpt-4o-mini"\nmax_output_tokens = 200\ntemperature = 0\n'
RUBRIC = '[[rubrics]]\nid = "faithful"\nname = "Faithful"\ndescription = "The answer keeps to its context."\n'
STRICT = "You are a strict evaluator. Score the answer from 1 to 5 for faithfulness to the context."
ITEMS = '[items]\npath = "{}"\n'
STUDIES = {
    "prompts": 'study = "bench"\ntask = "prompts"\n{items}'
    f'[[templates]]\nid = "mine"\ntext = "{STRICT}\\n\\n{{{{INPUT}}}}"\n'
    '[answer]\nform = "json"\n[answer.fields]\nscore = "/score"\nlabel = "/label"\nconfidence = "/confidence"\n',
    "compliance": 'study = "bench"\ntask = "compliance"\n{items}' + RUBRIC
    + f'[[templates]]\nid = "mine"\ntext = "{STRICT}\\n\\n{{{{STATEMENT}}}}\\n\\n{{{{OUTPUT}}}}\\n\\n{{{{INPUT}}}}"\n',
    "pairwise": 'study = "bench"\n{items}[pairs]\ncount = {n_pairs}\norder = "random"\nreverse = 1.0\n' + RUBRIC
    + '[[templates]]\nuse = "plain"\n',
}  # fmt: skip
LIMITS = {10_000: {"run": 1.0, "three": 1.5, "first": 1.0}, 100_000: {"run": 0.6}}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run took, in all its processes; the peak is of the largest."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mb: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu_s + other.cpu_s, self.wall_s + other.wall_s, max(self.peak_mb, other.peak_mb))


@dataclass(frozen=True)
class Bench:
    """Where everything lies, and how large the runs are."""

    n: int
    environments: Path
    data: Path
    home: Path
    runs: dict[str, list[Usage]] = field(default_factory=dict)

    def python(self, name: str) -> Path:
        """Return the interpreter of an environment."""
        return self.environments / name / "bin" / "python"

    def variables(self, folder: Path, home: Path) -> dict[str, str]:
        """Return what a process finds around it: one server, and nothing of the other environments."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        base_url = f"http://127.0.0.1:{PORT}/v1"
        tokenizers = self.environments.glob("litellm/lib/python3*/site-packages/litellm/litellm_core_utils/tokenizers")
        return kept | {
            "OPENAI_BASE_URL": base_url, "OPENAI_API_BASE": base_url, "OPENAI_API_KEY": "sk-fake", "HOME": str(home),
            "N": str(self.n), "DATA": str(self.data), "WORK": str(folder), "TMPDIR": str(folder), "NO_COLOR": "1",
            "TIKTOKEN_CACHE_DIR": next(map(str, tokenizers), ""), "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "TELEMETRY_ENABLED": "0", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip

    @contextmanager
    def server(self) -> Iterator[None]:
        """Run the peers' server, without anything in it."""
        command = [str(self.python("floor")), str(PEERS / "fake_openai.py"), "--port", str(PORT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield
            finally:
                process.terminate()

    def answered(self) -> int:
        """Return how many lines the server was sent."""
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/_stats", timeout=20) as reply:
            return int(json.load(reply)["_lines"])

    def take(self, case: str) -> None:
        """Run a case once, in a folder and with a server of its own."""
        with tempfile.TemporaryDirectory(prefix="peers-") as name, self.server():
            folder = Path(name)
            usage = self._peer(case, folder) if case in OTHERS else self._own(case, folder)
            assert self.answered() == self.n, f"{case} sent {self.answered():,} requests"
        self.runs.setdefault(case, []).append(usage)

    def _peer(self, case: str, folder: Path) -> Usage:
        driver = next((PEERS / "drivers").glob(f"{case}*.py"))
        return timed([str(self.python(case)), str(driver)], self.variables(folder, folder), folder)

    def _own(self, case: str, folder: Path) -> Usage:
        task, how = case.split()
        study = write_study(folder, task, self.n, self.data)
        home = folder if how == "first" else self.home
        variables = self.variables(folder, home)
        verbs = [["plan", study], ["submit", "bench", "--yes"], ["sync", "--watch", "--interval", "1"]]
        if how != "three":
            verbs = [["run", study, "--yes", "--interval", "1"]]
        program = str(self.environments / "bp" / "bin" / "batchpond")
        return sum((timed([program, *verb], variables, folder) for verb in verbs), Usage())


def timed(command: list[str], variables: Mapping[str, str], folder: Path) -> Usage:
    """Run a process to its end and return what it took, its children's work included."""
    log = folder / "log.txt"
    with log.open("ab") as said:
        started_s = time.perf_counter()
        process = subprocess.Popen(command, env=variables, cwd=folder, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    return Usage(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024)


def write_study(folder: Path, task: str, n: int, data: Path) -> str:
    """Write a study of so many requests about the peers' own items, and return its path."""
    path = data / f"items_{n}.jsonl"
    if task == "pairwise":
        n_items = next(count for count in itertools.count(2) if count * (count - 1) >= n)
        few = folder / "items.jsonl"
        with path.open("rb") as lines, few.open("wb") as out:
            out.writelines(itertools.islice(lines, n_items))
        path = few
    text = STUDIES[task].format(items=ITEMS.format(path), n_pairs=n // 2)
    (folder / "study.toml").write_text(text + MODELS)
    return str(folder / "study.toml")


def prepared(n: int, environments: Path, folder: Path) -> Bench:
    """Make what is missing: an environment for each tool, and the inputs."""
    for name, packages in PACKAGES.items():
        if not (environments / name).is_dir():
            subprocess.run([sys.executable, "-m", "venv", str(environments / name)], check=True)
            install = [str(environments / name / "bin" / "pip"), "install", "-q", *packages]
            if subprocess.run(install, check=False).returncode != 0:
                shutil.rmtree(environments / name)
    if missing := [name for name in ("floor", "bp", OTHERS[0]) if not (environments / name).is_dir()]:
        raise SystemExit(f"no environment could be made for {', '.join(missing)}")
    install = [str(environments / "bp" / "bin" / "pip"), "install", "-q", "--no-deps", "--force-reinstall", str(HERE)]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    python = str(environments / "floor" / "bin" / "python")
    subprocess.run([python, str(PEERS / "gen.py"), "data", str(n)], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    subprocess.run([python, str(PEERS / "mkitems.py"), str(n)], check=True, cwd=folder)
    home = folder / "home"
    home.mkdir()
    return Bench(n, environments, folder / "data", home)


def told(bench: Bench) -> bool:
    """Print medians and the ratios to the fastest peer; return whether all limits hold."""
    found = {
        case: {name: statistics.median(getattr(run, name) for run in runs) for name in Usage.__slots__}
        for case, runs in bench.runs.items()
    }
    fastest = {name: min(found[case][name] for case in OTHERS if case in found) for name in ("cpu_s", "wall_s")}
    is_kept = True
    for case, medians in found.items():
        ratios = [medians[name] / fastest[name] for name in ("cpu_s", "wall_s")]
        limit = LIMITS.get(bench.n, {}).get(case.partition(" ")[2])
        is_over = limit is not None and (max(ratios) > limit or medians["peak_mb"] > PEAK_MAX_MB)
        is_kept &= not is_over
        sys.stdout.write(
            f"{case:18} {medians['cpu_s']:6.2f} CPU s {ratios[0]:5.2f} x  {medians['wall_s']:6.2f} s {ratios[1]:5.2f} x"
            f"  {medians['peak_mb']:5.0f} MB  {'' if limit is None else f'limit {limit} x'}{' OVER' * is_over}\n"
        )
    sys.stdout.write(f"{bench.n:,} requests, medians; x: times the fastest peer\n")
    return is_kept


def main() -> int:
    """Take all cases in turn, as often as asked, and tell what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", nargs="?", type=int, default=SIZE)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--environments", type=Path, default=HERE / ".peers")
    parser.add_argument("--but", nargs="*", default=[], help="cases to leave out")
    asked = parser.parse_args()
    if not PEERS.is_dir():
        raise SystemExit(f"{PEERS} is not there: the drivers of the other tools are no part of this project")
    with tempfile.TemporaryDirectory() as name:
        bench = prepared(asked.n, asked.environments.resolve(), Path(name))
        peers = [one for one in OTHERS if (bench.environments / one).is_dir()]
        sys.stderr.write("".join(f"{one}: not there, left out\n" for one in OTHERS if one not in peers))
        cases = [*peers, *(f"{task} {how}" for task in TASKS for how in ("run", "three")), "prompts first"]
        for case in [one for _ in range(asked.runs) for one in cases if one not in asked.but]:
            bench.take(case)
            sys.stderr.write(f"{case}: {bench.runs[case][-1]}\n")
        return 0 if told(bench) else 1


if __name__ == "__main__":
    sys.exit(main())
