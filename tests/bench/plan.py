"""What `plan` costs for each kind of study, beside the floor of writing the same bodies as lines with orjson.

    python -m tests.bench.plan [REQUESTS ...] [--only KIND,...]

For each size (default 100,000) and kind it plans about that many requests of 1 to 2 KB into a fresh lake, in a process
of its own, and prints CPU seconds, the floor, their ratio and limit, the peak memory, and what planning again costs
where nothing changed. Imports that planning makes by itself and the lens count. From 100,000 requests on, where what a
start costs is little, ends with 1 where a ratio passes its limit, or 100,000 requests take more CPU or memory than
their budget.

- pairs: plain pairs of a file, five templates, two models, both directions
- prompts: rows of a file as they are
- compliance, likert: answers of a file by two statements, each answer with what was asked
- pressure: questions of a file, which are then pressed; labelling the answers waits
- adaptive: the first round of adaptive pairs
- ranking: candidates' answers of a file, each two of an input in both orders
- stages: inputs of a file are answered by two models, and pressed; compliance and ranking of the answers wait
- rows, ranked: what SQL finds, asked about in a later round: one by one, and ranked
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from batchpond.cli import spare
from batchpond.lake import tables
from batchpond.lake.store import Store
from batchpond.plan.rounds.rounds import asks_by_now
from batchpond.plan.verb import plan_study
from batchpond.plan.write import publish_round
from batchpond.study import file as study
from batchpond.views.refresh import refresh

KINDS = ("pairs", "prompts", "compliance", "likert", "pressure", "adaptive", "ranking", "stages", "rows", "ranked")
WAITING = ("rows", "ranked")
RATIO_MAX = 3.0
HELD_FROM = 100_000
CPU_S_PER_REQUEST_MAX = 2.0 / 100_000
PEAK_MB_MAX = 300.0
TEXT = "how water finds its own level in every vessel, a quick study of it " * 10
N_CANDIDATES = 3
FIRST_PER_ITEM = 10
FLOOR_LINES = 10_000

MODEL = '[[{}models]]\nprovider = "openai"\nmodel = "gpt-5.4-{}"\nmax_output_tokens = 300\n'
OF_STAGE = "stages."
PAIRS = """\
study = "bench"
rubrics = ["overall_quality"]
templates = ["plain", "concise", "rubric_first", "step_by_step", "order_warned"]
items = { path = "rows.jsonl" }
"""
ADAPTIVE = f'pairs = {{ select = "adaptive", first_per_item = {FIRST_PER_ITEM} }}\n'
STAGE = """\
[[stages]]
name = "{name}"
task = "{task}"
{items}
[[stages.templates]]
use = "{template}"
"""
STATEMENTS = "".join(
    f'[[stages.rubrics]]\nid = "{name}"\nname = "{name}"\ndescription = "The assistant should be {name}."\n'
    for name in ("honest", "brief")
)
OF_FILE = 'items = { path = "rows.jsonl" }'
OF_ANSWERS = 'items = { path = "rows.jsonl", unit = "unit", candidate = "candidate", input = "asked" }'
OF_SQL = '''
[stages.items]
sql = """
select n // {n_of_unit} as unit, 'input/' || n // {n_of_unit} || '/' || n % {n_of_unit} as id,
  'model-' || n % {n_of_unit} as candidate, n || ' {text}' as text
from range({n}) as numbers (n)
"""
after = ["answers"]
unit = "unit"
candidate = "candidate"
'''
OF_STAGE_ROWS = 'items = { stage = "answers" }'
TEMPLATES = {
    "generation": "question",
    "compliance": "compliance_json",
    "likert": "likert_json",
    "pressure": "pressure_label",
    "ranking": "ranking_lines",
}
PRESSED = f"""\
[[stages]]
name = "talk"
task = "conversation"
turns = 2
tactics = ["social_proof"]
{OF_FILE}
"""


def stage_of(name: str, task: str, items: str, *asked: str) -> str:
    """Return a stage as a study file has it."""
    statements = "" if task in {"generation", "pressure"} else STATEMENTS
    stage = STAGE.format(name=name, task=task, items=items, template=TEMPLATES[task])
    return stage + statements + models(*asked or ("mini",))


def models(*names: str, of: str = OF_STAGE) -> str:
    """Return models as a study file has them."""
    return "".join(MODEL.format(of, name) for name in names)


def study_of(kind: str, n_requests: int) -> tuple[str, Iterator[dict[str, Any]]]:
    """Return the study file of a kind, and the rows that its file holds."""
    head = 'study = "bench"\n'
    match kind:
        case "pairs" | "adaptive":
            per_item = FIRST_PER_ITEM * 5
            n = n_requests // per_item if kind == "adaptive" else round((1 + math.sqrt(1 + 0.4 * n_requests)) / 2)
            return PAIRS + (ADAPTIVE if kind == "adaptive" else "") + models("mini", "nano", of=""), inputs(n, TEXT)
        case "prompts":
            how = '[stages.answer]\nform = "json"\nfields = { score = "/score" }\n'
            how += '[[stages.templates]]\nid = "as_it_is"\ntext = "{INPUT}"\n'
            stage = f'[[stages]]\nname = "asked"\ntask = "prompts"\n{OF_FILE}\n{how}' + models("mini")
            return head + stage, inputs(n_requests)
        case "compliance" | "likert":
            return head + stage_of("judged", kind, OF_ANSWERS), answers(n_requests // 2)
        case "ranking":
            return head + stage_of("judged", kind, OF_ANSWERS), answers(n_requests // 4)
        case "pressure" | "stages":
            text = PRESSED + models("mini") + stage_of("labels", "pressure", 'items = { stage = "talk" }')
            if kind == "stages":
                later = [stage_of(f"{task}-later", task, OF_STAGE_ROWS) for task in ("compliance", "ranking")]
                text = stage_of("answers", "generation", OF_FILE, "mini", "nano") + text + "".join(later)
                n_requests //= 2  # what is pressed asks one of the two the same
            return head + text, inputs(n_requests)
        case _:
            n_of_unit, n = (N_CANDIDATES, n_requests // 4) if kind == "ranked" else (1, n_requests // 2)
            items = OF_SQL.format(n_of_unit=n_of_unit, n=n, text=TEXT)
            task = "ranking" if kind == "ranked" else "compliance"
            return head + stage_of("answers", "generation", OF_FILE) + stage_of("verdicts", task, items), inputs(2)


def inputs(n_rows: int, text: str = 2 * TEXT) -> Iterator[dict[str, Any]]:
    """Yield rows of one text each."""
    return ({"id": f"input/{number}", "text": f"{number} {text}"} for number in range(n_rows))


def answers(n_rows: int) -> Iterator[dict[str, Any]]:
    """Yield what candidates answered, and what they were asked."""
    for number in range(n_rows):
        unit, candidate = divmod(number, N_CANDIDATES)
        told = {"unit": f"input-{unit}", "candidate": f"model-{candidate}", "asked": f"What of {unit}?"}
        yield {"id": f"{unit}/{candidate}", "text": f"{number} {TEXT}", **told}


def prepared(folder: Path, kind: str, n_requests: int) -> tuple[Store, Callable[[], object], Callable[[], object]]:
    """Return a lake, what is to be measured, and what plans the same again."""
    text, rows = study_of(kind, n_requests)
    (folder / "study.toml").write_text(text)
    with (folder / "rows.jsonl").open("wb") as file:
        file.writelines(orjson.dumps(row) + b"\n" for row in rows)
    store, loaded = Store.init(folder / "lake"), study.load(folder / "study.toml")
    if kind not in WAITING:
        return store, lambda: plan_study(store, loaded), lambda: plan_study(store, loaded)
    report, stage = plan_study(store, loaded), loaded.stage("verdicts")
    refresh(store)

    def opened() -> object:
        asked = asks_by_now(store, loaded, stage, None, Counter(), is_begun=False)
        return publish_round(store, loaded, report.study_version, 2, stage, asked)

    return store, opened, opened


def measure(kind: str, n_requests: int) -> dict[str, float]:
    """Plan once in this process, then again, and return the numbers."""
    with tempfile.TemporaryDirectory() as name:
        store, run, again = prepared(Path(name), kind, n_requests)
        cpu_s = cpu_of(run)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        again_s = cpu_of(again)
        n, floor_s, n_bytes = floor_of(store, Path(name) / "floor.jsonl")
    return {
        "requests": n,
        "body_bytes": n_bytes / n,
        "cpu_s": cpu_s,
        "floor_s": floor_s,
        "peak_mb": peak_mb,
        "again_s": again_s,
    }


def cpu_of(run: Callable[[], object]) -> float:
    """Return the CPU seconds that a call takes."""
    start = time.process_time()
    run()
    return time.process_time() - start


def floor_of(store: Store, path: Path) -> tuple[int, float, int]:
    """Return how many requests the lake has, the CPU seconds of serialising and writing their lines, and their size."""
    n, seconds, n_bytes = 0, 0.0, 0
    with tables.connect(store, ["requests"]) as connection, path.open("wb") as file:
        found = connection.execute("SELECT request_id, body FROM requests")
        while rows := found.fetchmany(FLOOR_LINES):
            lines = [{"custom_id": name, "body": orjson.loads(body)} for name, body in rows]
            start = time.process_time()
            for line in lines:
                file.write(orjson.dumps(line, option=orjson.OPT_SORT_KEYS))
                file.write(b"\n")
            seconds += time.process_time() - start
            n, n_bytes = n + len(rows), n_bytes + sum(len(body) for _, body in rows)
    return n, seconds, n_bytes


def in_process(kind: str, n_requests: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.plan", "--one", kind, str(n_requests)]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def line_of(kind: str, now: dict[str, float]) -> str:
    """Return what is told of a measurement."""
    n, ratio = int(now["requests"]), now["cpu_s"] / now["floor_s"]
    return (
        f"{kind:10} {n:>9,} requests of {now['body_bytes']:>5,.0f} B  CPU {now['cpu_s']:>6.2f} s"
        f" (limit {n * CPU_S_PER_REQUEST_MAX:.2f})  floor {now['floor_s']:.3f} s  {ratio:>5.1f} x (limit {RATIO_MAX})"
        f"  peak {now['peak_mb']:>4.0f} MB (limit {PEAK_MB_MAX:.0f})  again {now['again_s']:.2f} s"
    )


def is_over(now: dict[str, float]) -> bool:
    """Whether a measurement passes a limit."""
    is_held = now["requests"] >= HELD_FROM * 0.99
    is_slow = now["cpu_s"] > min(RATIO_MAX * now["floor_s"], now["requests"] * CPU_S_PER_REQUEST_MAX)
    return is_held and (is_slow or now["peak_mb"] > PEAK_MB_MAX)


def main() -> int:
    """Print a line for each size and kind; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=[100_000])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(KINDS))
    wanted = parser.parse_args()
    found = []
    for size in wanted.sizes:
        for kind in wanted.only:
            found.append(in_process(kind, size))
            print(line_of(kind, found[-1]), flush=True)
    return int(any(map(is_over, found)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        spare()  # as the program does
        sys.stdout.write(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        sys.exit(main())
