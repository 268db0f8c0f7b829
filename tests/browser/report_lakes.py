"""Lakes whose reports a browser looks at: the demo's, a large imported one, one of hostile names and answers, and more.

All but one, which has every task in it, are made by the commands that a user would type.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from tests.rigs import files_worker
from tests.rigs import report as report_support
from tests.rigs.files_worker import Row

DEADLINE_S: Final = 600.0
N_JUDGMENTS: Final = 1_000_000
N_ITEMS: Final = 60
MARK: Final = "PWNED"
# What names and answers try: each sets a mark, opens a dialog, asks for a file, or breaks out of what it stands in.
PAYLOADS: Final = (
    f"<script>window.{MARK}=1;alert(1)</script>",
    f'"><img src="http://127.0.0.1:9/a.png" onerror="window.{MARK}=1;alert(2)">',
    f"</style></svg></pre></details><script>window.{MARK}=1</script>",
    f"<svg onload='window.{MARK}=1;alert(3)'><a href='javascript:alert(4)'>x</a></svg>",
    "javascript:alert(5)",
    "{{ 7 * 7 }} {% for x in y %} ${alert(6)} <%= 1 %>",
    "<!-- <base href='http://127.0.0.1:9/'> <link rel=stylesheet href='http://127.0.0.1:9/s.css'> -->",
    "<style>body{display:none}</style><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "\u202egnp.exe\u2066 reversed \u2069 \u200f\u200e",
    "bell \x07 escape \x1b[31m null-like \x01 delete \x7f next-line \x85",
    "W" * 10_000,
    "Z" + "\u0337\u0321\u0328\u034f" * 200 + "algo",
    "👩‍👩‍👧‍👦 漢字 العربية עברית",
    "=cmd|' /C calc'!A0",
    "a\r\nb\r\n\r\n\tc",
)
MODEL: Final = f'"><img/src="http://127.0.0.1:9/m.png"/onerror="window.{MARK}=1;alert(7)">'
STUDY: Final = """
study = "hostile"
[items]
path = "items.csv"
[[rubrics]]
id = "clarity"
name = 'RUBRIC'
description = "How clear a text is."
[[templates]]
id = "short"
text = "{TRAIT_NAME} {TRAIT_DESCRIPTION} {SAMPLE_1} {SAMPLE_2} {ANSWER_FIRST} {ANSWER_SECOND}"
[[models]]
provider = "vllm"
model = 'MODEL'
mode = "files"
max_output_tokens = 50
[[models]]
provider = "vllm"
model = "a-plain-model"
mode = "files"
max_output_tokens = 50
"""


def pond(lake: Path, *arguments: str) -> str:
    """Run the program on a lake and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "batchpond", "--lake", str(lake), *arguments],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=lake.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def demo(folder: Path) -> Path:
    """Return the demo's lake."""
    pond(folder / "demo", "demo")
    return folder / "demo"


def every(folder: Path) -> Path:
    """Return a small lake that every section of a report has data in."""
    return report_support.build(folder / "every")


def large(folder: Path) -> Path:
    """Return a lake with a million imported judgments of sixty items by twelve cells, two of the judges biased."""
    dice = np.random.default_rng(5)
    theta = np.sort(dice.normal(0, 1.2, N_ITEMS))[::-1]
    first = dice.integers(0, N_ITEMS, N_JUDGMENTS)
    second = (first + dice.integers(1, N_ITEMS, N_JUDGMENTS)) % N_ITEMS
    judge, template = (dice.integers(0, n, N_JUDGMENTS) for n in (4, 3))
    bias = np.array([0.0, 0.5, -0.3, 0.15])[judge]
    is_first = dice.random(N_JUDGMENTS) < 1 / (1 + np.exp(-(theta[first] - theta[second] + bias)))
    fate = dice.random(N_JUDGMENTS)
    verdicts = np.where(is_first, "first", "second").astype("U10")
    verdicts = np.select([fate < 0.03, fate < 0.04, fate < 0.045], ["tie", "unparsed", "refused"], verdicts)
    names = np.array([f"essay-{number:03d}" for number in range(N_ITEMS)])
    providers = np.array(["openai", "anthropic", "gemini", "together"])
    models = np.array(["gpt-5.4-mini", "claude-haiku-4-5", "gemini-2.5-flash", "llama-3.3-70b"])
    columns = {
        "item_first": names[first], "item_second": names[second], "verdict": verdicts,
        "template_id": np.array(["concise", "plain", "step_by_step"])[template], "rubric_id": "overall_quality",
        "provider": providers[judge], "model": models[judge], "repeat_no": np.arange(1, N_JUDGMENTS + 1),
    }  # fmt: skip
    pl.DataFrame(columns).write_parquet(folder / "judgments.parquet")
    pond(folder / "large", "import", "judgments", str(folder / "judgments.parquet"), "--study", "large")
    return folder / "large"


def hostile(folder: Path) -> Path:
    """Return a lake whose items, texts, rubric, model, answers and errors are all payloads.

    Study `hostile` is planned and answered by files; study `<script>...` is imported.
    """
    rig = folder / "rig"
    rig.mkdir()
    lake = folder / "hostile"
    with (rig / "items.csv").open("w", newline="") as file:
        rows = [(f"{number} {text}"[:200], f"text {text}") for number, text in enumerate(PAYLOADS[:8])]
        csv.writer(file).writerows([("id", "text"), *rows])
    text = STUDY.replace("RUBRIC", PAYLOADS[0].replace("'", "")).replace("MODEL", MODEL)
    (rig / "study.toml").write_text(text)
    pond(lake, "plan", str(rig / "study.toml"))
    pond(lake, "submit", "hostile", "--yes")
    files_worker.work(lake / "files", lambda rows: [_answered(number, row) for number, row in enumerate(rows)])
    long_ago_s = time.time() - 600
    for path in (lake / "files" / "inbox").iterdir():
        os.utime(path, (long_ago_s, long_ago_s))
    pond(lake, "sync")
    _import_hostile(lake, folder / "hostile.csv")
    return lake


def _answered(number: int, row: Row) -> Row:
    """Return an answer that is a payload: with a verdict, without one, refused, or an error of the provider."""
    payload = PAYLOADS[number % len(PAYLOADS)]
    if number % 7 == 5:
        return {**row, "response": None, "error": {"code": payload[:60], "message": payload}}
    verdict = ("SAMPLE_1", "SAMPLE_2", "SAMPLE_1 SAMPLE_2")[number % 3]
    message = row["response"]["body"]["choices"][0]["message"]
    message["content"] = f"{payload} <BETTER_SAMPLE>{verdict}</BETTER_SAMPLE> {payload}"
    return json.loads(json.dumps(row))  # type: ignore[no-any-return]


def _import_hostile(lake: Path, path: Path) -> None:
    names = [text[:300] for text in PAYLOADS]
    heads = ("study", "item_first", "item_second", "verdict", "template_id", "rubric_id", "provider", "model")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(heads)
        for number, first in enumerate(names):
            for other, second in enumerate(names):
                cell = (names[0], names[1 + number % 2], names[3], names[4 + other % 2])
                verdict = ("first", "second", "tie", "unparsed")[(number * other + number) % 4]
                if first != second:
                    writer.writerow((names[0], first, second, verdict, *cell))
    pond(lake, "import", "judgments", str(path))


def report(lake: Path, study: str, page: Path) -> Path:
    """Write a study's report."""
    pond(lake, "report", study, "--output", str(page), "--force")
    return page
