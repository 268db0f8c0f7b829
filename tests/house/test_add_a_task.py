"""A task is added in the files that `tasks/README.md` names, and in no other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import batchpond
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings

PACKAGE = Path(batchpond.__file__).parent
SOURCES = PACKAGE.parent
CHECKLIST = (PACKAGE / "tasks" / "README.md").read_text("utf-8")

TASK = '''
"""The shout task: is an output all in capitals, as its judge says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from batchpond.model import Outcome, Response
from batchpond.tasks.base import Judgment, Rule, read
from batchpond.tasks.templates import Placeholders

TASK: Final = "shout"


@dataclass(frozen=True)
class ShoutRule(Rule):
    """Any answer with a letter in it is decided; its label says whether it was loud."""

    TASK: ClassVar[str] = TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(("OUTPUT",), ("INPUT",))
    PARSER_VERSION: ClassVar[int] = 1

    def read(self, response: Response) -> Judgment:
        """Return how loud a response is."""
        return read(response, self._judged)

    @staticmethod
    def _judged(text: str) -> Judgment | None:
        return Judgment(None, Outcome.DECIDED, label="loud" if text.isupper() else "calm")
'''
STUDY = """
study = "voices"
task = "shout"
[items]
path = "items.csv"
[[templates]]
use = "heard"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 200
"""


def test_a_task_needs_its_module_its_texts_and_a_line_in_the_registry(tmp_path: Path) -> None:
    """A toy task is planned, asked, read and counted by a copy of the package with the documented files alone."""
    files = re.findall(r"^- \[ \] `(.+?)`", CHECKLIST, re.MULTILINE)
    assert files == [
        "tasks/<task>.py",
        "tasks/texts/<task>/*.txt",
        "tasks/registry.py",
        "tests/unit/tasks/test_<task>.py",
    ]
    source = tmp_path / "src"
    for name in ("batchpond", "batchpond_sim"):
        shutil.copytree(SOURCES / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SOURCES.parent / "sql", tmp_path / "sql")
    (source / "batchpond" / "tasks" / "shout.py").write_text(TASK.lstrip())
    texts = source / "batchpond" / "tasks" / "texts" / "shout"
    texts.mkdir()
    (texts / "heard.txt").write_text("Is this shouted? {OUTPUT}\n")
    registry = source / "batchpond" / "tasks" / "registry.py"
    before = "from batchpond.tasks import "
    line = "    inputs.TASK: (inputs.InputsRule,),\n"
    text = registry.read_text()
    assert line in text
    text = text.replace(before, f"{before}shout, ", 1).replace(line, f"{line}    shout.TASK: (shout.ShoutRule,),\n")
    registry.write_text(text)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "items.csv").write_text("id,text\na,HELLO THERE\nb,hello there\n")
    with server.running(Settings(seed=1, latency_s=(1.0, 2.0))) as simulator:
        environment = os.environ | {
            "PYTHONPATH": str(source),
            "OPENAI_BASE_URL": simulator.base_url_of("openai"),
            "OPENAI_API_KEY": "simulated-key",
            "BATCHPOND_LAKE": str(tmp_path / "lake"),
        }

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "batchpond", *arguments]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("plan", "study.toml")
        run("submit", "voices", "--yes")
        simulator.world.advance(20.0)
        run("sync")
        sql = "select item_first, outcome, task from results order by item_first"
        assert run("query", sql, "--format", "csv").split() == [
            "item_first,outcome,task",
            "a,decided,shout",
            "b,decided,shout",
        ]
