"""Studies that people change while they are asked: drawn from all that a file can say, and a walk of what they do.

What is approved, sent, collected, cancelled and asked again between two changes, which faults a provider has and where
the process dies is drawn by a seed, which also plays it again. Where it ends is held against what is true of any study.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from batchpond.errors import BatchpondError, StudyError
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Resolution
from batchpond.run.resolve import cancel, resolve
from tests.rigs import combined, schedules
from tests.rigs.combined import Drawn
from tests.rigs.sim_inputs import STUDY
from tests.rigs.stage_study import StageRig

N_CHANGES = 5
ENDS_MAX = 4
TOKENS = "3000"
_MODEL = re.compile(r"\[\[stages\.models\]\]\n(?:[a-z_]+ = .*\n)+")
_TASK = re.compile(r'\n(task = "(?!conversation|inputs)\w+"\n)')
TEMPLATES = (("compliance_brief", "compliance_json"), ("plain", "concise"), ("ranking_brief", "ranking_lines"))
FILES = ("questions", "outputs", "wide")


class Walk:
    """A person with a drawn study; `said` is what they did, for whoever looks into a seed."""

    def __init__(self, rig: StageRig, study: Drawn) -> None:
        self.rig = rig
        self.draw = random.Random(f"walk {study.seed}")
        self.said: list[str] = []
        self._texts = [study.toml]
        self._n_prompts = combined.N_PROMPTS
        self._refetched: set[str] = set()
        self._is_whole = True
        self._changes = (
            self._fewer_tokens, self._one_model_less, self._one_model_more, self._repeats, self._shards, self._template,
            self._back, self._other_text, self._a_row_less, self._grown,
        )  # fmt: skip
        self._acts: dict[str, Callable[[], object]] = {
            "submit": lambda: rig.submit(None),
            "limit": lambda: rig.submit(self.draw.randint(1, 8)),
            "sync": self._sync,
            "later": lambda: rig.clock.advance(2_000.0),
            "die": self._die,
            "fault": lambda: rig.world.add_fault(self.draw.choice(schedules.HARMLESS)),
            "retry": rig.retry,
            "cancel": lambda: rig.cancel_open(self.draw.randint(0, 5)),
            "cancel all": lambda: cancel(rig.store(), [], providers=rig.providers(), study=STUDY),
        }

    def play(self) -> Iterator[str]:
        """Walk, ask what is left to the end, and yield all that is wrong with what came of it.

        Raises StudyError where the study is refused before anything is changed.
        """
        self.rig.planned()
        for _ in range(N_CHANGES):
            for name in self.draw.choices([*self._acts], k=self.draw.randint(0, 3)):
                self.said.append(name)
                self._do(self._acts[name])
            self._change()
        self.rig.world.clear_faults()
        if not self._has_ended():
            yield "it does not come to an end"
            return
        yield from combined.held(self.rig, is_whole=self._is_whole)

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BatchpondError as error:
            self.said[-1] += f" ({error})"

    def _sync(self) -> None:
        self.rig.clock.advance(self.draw.choice([10.0, 400.0, 900.0]))
        self.rig.sync()

    def _die(self) -> None:
        self.rig.crash_in = self.draw.randint(0, 60)
        self.rig.survive(partial(combined.one_pass, self.rig, None))

    def _has_ended(self) -> bool:
        for _ in range(ENDS_MAX):
            try:
                combined.ended(self.rig)
            except AssertionError:  # what a provider never answers is a person's to decide
                self.rig.clock.advance(200_000.0)
                self.rig.decide_what_stays_open()
                self.rig.refetch_mismatched()
            else:
                lacking = [one for one in self.rig.attempts() if one.phase is Phase.MISMATCH]
                if not lacking:
                    return True
                # Of a batch that was cancelled one provider counts what it answered, and gives nothing of it.
                self._is_whole &= not all(one.attempt_id in self._refetched for one in lacking)
                for one in lacking:
                    way = Resolution.LOST if one.attempt_id in self._refetched else Resolution.REFETCH
                    resolve(self.rig.store(), one.attempt_id, way, providers=self.rig.providers())
                    self._refetched.add(one.attempt_id)
        return False

    def _change(self) -> None:
        """Change the study or a file and plan it; what is refused is taken back."""
        change = self.draw.choice(self._changes)
        self.said.append(change.__name__.removeprefix("_"))
        text = change(self._texts[-1])
        self.rig.write(text)
        try:
            self.rig.planned()
        except StudyError as error:
            self.said[-1] += f" ({error})"
            self.rig.write(self._texts[-1])
            combined.write(self.rig.study_path.parent, self._n_prompts)
            self.rig.planned()
        else:
            self._texts.append(text)

    # -- changes of the study: its text before, its text after --------------------------------------

    def _of_a_model(self, text: str, changed: Callable[[str], str]) -> str:
        found = [*_MODEL.finditer(text)]
        one = self.draw.choice(found)
        return text[: one.start()] + changed(one.group()) + text[one.end() :]

    def _fewer_tokens(self, text: str) -> str:
        return self._of_a_model(text, lambda model: model.replace(TOKENS, str(self.draw.choice([1_500, 2_000]))))

    def _one_model_less(self, text: str) -> str:
        return text if len(_MODEL.findall(text)) == 1 else self._of_a_model(text, lambda _: "")

    def _one_model_more(self, text: str) -> str:
        provider, name, _ = self.draw.choice(combined.PROVIDERS)
        more = f'[[stages.models]]\nprovider = "{provider}"\nmodel = "{name}"\nmax_output_tokens = {TOKENS}\n'
        return text if name in text else self._of_a_model(text, lambda model: model + more)

    def _repeats(self, text: str) -> str:
        repeats = f"repeats = {self.draw.randint(1, 4)}\n"
        if "repeats = " in text:
            return re.sub(r"repeats = \d\n", repeats, text)
        return _TASK.sub(rf"\n\1{repeats}", text, count=1)

    def _shards(self, text: str) -> str:
        return re.sub(r"max_requests = \d+", f"max_requests = {self.draw.choice([2, 5, 50])}", text)

    def _template(self, text: str) -> str:
        for one, other in TEMPLATES:
            if f'"{one}"' in text and f'"{other}"' not in text:
                return text.replace(f'use = "{one}"', f'use = "{other}"')
        return text

    def _back(self, _: str) -> str:
        return self.draw.choice(self._texts)

    # -- changes of its files -----------------------------------------------------------------------

    def _rows(self, name: str, change: Callable[[list[dict[str, Any]], int], None]) -> None:
        path = self.rig.study_path.parent / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows, self.draw.randrange(len(rows)))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def _other_text(self, text: str) -> str:
        def change(rows: list[dict[str, Any]], place: int) -> None:
            rows[place]["text" if "text" in rows[place] else "question"] += " (changed)"

        self._rows(self.draw.choice([*FILES, "statements"]), change)
        return text

    def _a_row_less(self, text: str) -> str:
        def change(rows: list[dict[str, Any]], place: int) -> None:
            del rows[place : place + (len(rows) > 3)]

        self._rows(self.draw.choice(FILES), change)
        return text

    def _grown(self, text: str) -> str:
        self._n_prompts += 1
        combined.write(self.rig.study_path.parent, self._n_prompts)
        return text
