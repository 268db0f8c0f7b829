"""Studies drawn from all that a study file can say, each setting with each other: what no hand would put together.

A study is its seed: the same one draws the same stages, files, judges and moments to die. What it comes to is held
against what is true of every study, whatever it asks.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import duckdb

from batchpond.errors import BatchpondError
from batchpond.views import database
from batchpond_report import build, markdown
from batchpond_report.build import ReportFormat, text
from batchpond_sim.world.world import Settings
from tests.rigs.carried import differences
from tests.rigs.pictures import png
from tests.rigs.stage_study import StageRig

N_PROMPTS = 6
STATEMENTS = ("be_brief", "be_honest", "no_insults")
WRITERS = ("big", "small", "tiny")
PROVIDERS = (
    ("openai", "gpt-5.4-mini", ("none", "low")),
    ("openai", "gpt-4.1-mini", ("none",)),
    ("anthropic", "claude-haiku-4-5", ("none",)),
    ("gemini", "gemini-2.5-flash", ("none",)),
    ("mistral", "mistral-small-2603", ("none",)),
)
FAULTS = ("unparsed_rate=0.2", "error_rate=0.2", "refusal_rate=0.15,empty_rate=0.1", "tie_rate=0.3")
JUDGED = {
    "compliance": ("compliance_brief", "compliance_json"),
    "likert": ("likert_json",),
    "ranking": ("ranking_brief", "ranking_lines", "ranking_plain"),
    "listwise": ("listwise_answers",),
}
REFERENCE = {"compliance": "compliance_reference", "likert": "likert_reference", "ranking": "ranking_reference"}
FIELDS = """
[[stages.answer.fields]]
name = "good"
kind = "verdict"
tag = "GOOD"
[[stages.answer.fields]]
name = "worth"
kind = "score"
range = [1, 5]
tag = "WORTH"
"""
TIES = '[stages.answer]\ntie = "SAME"\n'
OPINION = '''
[[stages.templates]]
id = "second"
text = """
{STATEMENT}
Question: {INPUT}
A good answer: {answers.reference.text}
Answer: {OUTPUT}
{#answers.first.verdict}
Another judge says {answers.first.verdict}.
{/answers.first.verdict}
{ANSWER_FORMAT}"""
'''
LOOK = '''
[[stages.templates]]
id = "look"
[[stages.templates.messages]]
role = "system"
text = "You judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}"
[[stages.templates.messages]]
role = "user"
text = """
{SAMPLE_1.photo as media}
SAMPLE_1: {SAMPLE_1}
{SAMPLE_2.photo as media}
SAMPLE_2: {SAMPLE_2}
{#SAMPLE_1.nowhere}never{/SAMPLE_1.nowhere}
Write {ANSWER_FIRST} or {ANSWER_SECOND}."""
'''


DRAWN = ("count", "share", "adaptive", "listwise", "inputs", "alternate", "reverse = 0.5")
"""What asks of some of all that there is: one item more may change which."""


@dataclass
class Drawn:
    """A study as it is written, and what is known of it before it is asked."""

    seed: int
    toml: str
    stages: list[str] = field(default_factory=list)
    is_exact: bool = True
    judges: tuple[str, ...] = ()
    is_drawn: bool = False
    limit: int | None = None
    dies: tuple[int, ...] = ()


def write(folder: Path, n_prompts: int = N_PROMPTS) -> None:
    """Write all files that any study names; of more prompts, the first are the same."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    statements = [
        {"id": name, "text": f"An answer must {name}.", "worth": worth, "type": "rule", "tags": ["a", "b"]}
        for name, worth in zip(STATEMENTS, (3, 1.5, -2), strict=True)
    ]
    questions, outputs, wide = [], [], []
    for n in range(n_prompts):
        own = {"statement": STATEMENTS[n % 3], "criteria": draw.sample(STATEMENTS, 1 + n % 3), "level": 1 + n % 2}
        asked = {"id": f"q{n}", "text": f'Question {n}, what\'s "it"?\n', "reference": f"Reference {n}", **own}
        questions.append(asked)
        texts = {name: f"{name} says {n} [[quality=0.{draw.randint(1, 9)}]] {{INPUT}} \u00e9" for name in WRITERS}
        wide.append({"id": asked["id"], "question": asked["text"], **own, **texts, "reference": asked["reference"]})
        outputs += [
            {"id": f"{name}-{n}", "text": texts[name], "prompt": asked["id"], "model": name, "question": asked["text"],
             "reference": asked["reference"], **own}
            for name in WRITERS[: 2 if n == 1 else 3]
        ]  # fmt: skip
    for row in outputs:
        row["photo"] = f"{row['model']}.png"
    named = {"statements": statements, "questions": questions, "outputs": outputs, "wide": wide}
    for name, rows in named.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for place, name in enumerate(WRITERS):
        (folder / f"{name}.png").write_bytes(png(60, 44, place))
    pairs = [f"big-{n},{name}-{n}" for n in range(N_PROMPTS) for name in ("small", "tiny") if (n, name) != (1, "tiny")]
    (folder / "pairs.csv").write_text("\n".join(["item_1,item_2", *pairs[:7]]) + "\n")


class _Writer:
    """Draws one study."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.found = Drawn(seed, "")
        self.parts: list[str] = []

    def some(self, share: float) -> bool:
        return self.draw.random() < share

    def study(self) -> Drawn:
        """Return the study, whole."""
        draw = self.draw
        head = f'study = "demo"\nseed = {draw.randint(0, 9)}\n[shards]\nmax_requests = {draw.choice([3, 10, 100])}\n'
        if self.some(0.15):
            head += "[retry]\nmax_attempts = 2\n"
        if self.some(0.1):
            head += f'[claims]\nprimary = "{draw.choice(["position", "compliance", "win matrix", "length"])}"\n'
        kinds = [self.texts, self.texts, self.outputs, self.outputs, self.wide, self.answers, self.answers, self.talk]
        draw.choice([*kinds, self.made, self.second_opinion, self.pictures])()
        if self.some(0.3):
            self.again()
        self.found.judges = (f"*:{draw.choice(FAULTS)}",) if self.some(0.4) else ()
        self.found.is_exact &= not self.found.judges
        is_whole = "made:inputs" in self.found.stages  # it chooses among all answers: it cannot be sent in part
        self.found.limit = draw.randint(1, 9) if self.some(0.25) and not is_whole else None
        self.found.dies = tuple(draw.randint(0, 60) for _ in range(3)) if self.some(0.3) else ()
        self.found.toml = head + "".join(self.parts)
        self.found.is_drawn = any(word in self.found.toml for word in DRAWN)
        return self.found

    # -- what a stage begins with ----------------------------------------------------------------

    def texts(self) -> None:
        """Texts, compared by two, or in lists, or read for several fields."""
        items = 'path = "outputs.jsonl"'
        if self.some(0.3):
            self.fields(items)
        elif self.some(0.6):
            more = self.pairs() + self.draw.choice(["", "", TIES, "[stages.answer]\nlogprobs = true\n"])
            self.stage("judged", "pairwise", items, more, templates=("plain", "concise"), rubrics=self.traits())
            self.found.is_exact &= "adaptive" not in more
        else:
            more = f"[stages.lists]\nsize = {self.draw.choice([2, 3, 4])}\n"
            more += self.draw.choice(["", "reverse = false\n", "count = 5\n", "reverse = 0.5\n"])
            templates = ("listwise_order",)
            self.stage("judged", "listwise", items, more, templates=templates, rubrics=self.traits())

    def outputs(self) -> None:
        """Outputs of a file, or of SQL on the lake, by statements."""
        items = 'path = "outputs.jsonl"\nunit = "prompt"\ncandidate = "model"\ninput = "question"'
        self.judged("judged", items, has_reference=True, has_columns=True)

    def wide(self) -> None:
        """A row for each question, with a column for each candidate's answer."""
        items = f'path = "wide.jsonl"\ncandidates = {json.dumps(WRITERS)}\ninput = "question"'
        self.judged("judged", items, has_reference=True, has_columns=True)

    def answers(self) -> None:
        """Questions that models answer, and what is made of the answers."""
        self.generated("answers", 'path = "questions.jsonl"' + self.column(0.25, ("statement",)))
        items = 'stage = "answers"' + self.column(0.4, ("criteria", "statement"))
        if self.some(0.2):
            items += '\nwhere = "length(text) % 2 = 0"'
            self.found.is_exact = False
        if self.some(0.2):
            self.judged("first", 'stage = "answers"')
        if self.some(0.15):
            items = (
                "sql = \"select unit_id || '/' || candidate_first || '/' || repeat_no as id, any_value(text) as text,"
                " unit_id as prompt, any_value(candidate_first) as model, 'be_brief' as statement from results"
                " where stage = 'answers' and outcome = 'answered' group by unit_id, candidate_first, repeat_no\""
                '\nafter = "answers"\nunit = "prompt"\ncandidate = "model"'
            ) + self.column(0.5, ("statement",))
            self.found.is_exact = False
        self.judged("judged", items)

    def talk(self) -> None:
        """Models that are pressed, and labels."""
        cold = "cold_start = true\n" if self.some(0.3) else ""
        head = f'turns = {self.draw.choice([1, 2])}\ntactics = ["social_proof", "false_research"]\n{cold}'
        self.raw_stage("talk", "conversation", 'path = "questions.jsonl"', head, self.models(2))
        labels = f"{self.use(['pressure_label'])}{self.models(self.draw.choice([1, 2]))}"
        self.raw_stage("labels", "pressure", 'stage = "talk"', self.repeats(), labels)
        self.found.is_exact = False

    def made(self) -> None:
        """Questions that models write in rounds, answered and judged."""
        head = "categories = 2\nscenarios_per_category = 1\nquestions_per_scenario = 2\nper_statement = 2\n"
        head += "max_rounds = 2\n"
        makers = self.models(1)
        judges = makers.replace("[[stages.models]]", "[[stages.judges]]")
        self.found.stages.append("made:inputs")
        rubrics = self.statements()
        self.parts.append(f'\n[[stages]]\nname = "made"\ntask = "inputs"\n{head}{rubrics}{makers}{judges}')
        self.generated("answers", 'stage = "made"')
        self.judged("judged", 'stage = "answers"')
        self.found.is_exact = False

    def second_opinion(self) -> None:
        """A judge that reads what another said, and what a strong model answered."""
        self.generated("reference", 'path = "questions.jsonl"')
        self.generated("answers", 'path = "questions.jsonl"')
        self.raw_stage(
            "first", "compliance", 'stage = "answers"', self.repeats(0.2),
            f"{self.statements()}{self.use(['compliance_brief'])}{self.models(1)}",
        )  # fmt: skip
        items = 'stage = "answers"' + self.column(0.4, ("criteria",))
        tail = f"{self.statements()}{OPINION}{self.models(1)}"
        self.raw_stage("judged", "compliance", items, self.repeats(0.2), tail)

    def pictures(self) -> None:
        """Texts with a picture each, shown as it is or made smaller."""
        small = "\nmedia_max_px = 32" if self.some(0.5) else ""
        items = f'path = "outputs.jsonl"{small}'
        models = self.models(1, [one for one in PROVIDERS if one[0] in {"openai", "anthropic", "gemini"}])
        tail = f"[stages.pairs]\ncount = 9\nreverse = true\n{self.traits()}{LOOK}{models}"
        self.raw_stage("judged", "pairwise", items, self.repeats(0.2), tail)

    def again(self) -> None:
        """A dearer judge sees what the one before came to."""
        name, task = self.found.stages[-1].split(":")
        if task not in {"compliance", "likert", "ranking"}:
            return
        where = self.draw.choice(["", "\nwhere = \"outcome <> 'failed'\"", '\nwhere = "repeat_no = 1"'])
        self.found.is_exact &= not where
        templates = [self.draw.choice(JUDGED[task])]
        tail = f"{self.statements()}{self.use(templates)}{self.models(1)}"
        self.raw_stage("again", task, f'stage = "{name}"{where}', self.repeats(0.2), tail)

    # -- parts of a stage --------------------------------------------------------------------------

    def judged(self, name: str, items: str, *, has_reference: bool = False, has_columns: bool = False) -> None:
        """A judge of outputs by statements."""
        task = self.draw.choice(list(JUDGED))
        if has_columns:
            items += self.column(0.5, ("criteria", "statement")) if "rubric" not in items else ""
            if task != "listwise" and self.some(0.2):
                items += '\ntier = "level"'
        pool = [*JUDGED[task], *([REFERENCE[task]] if has_reference and task in REFERENCE else [])]
        more = ""
        if task == "ranking":
            more = self.draw.choice(
                ["", "", "[stages.pairs]\nreverse = 0.5\n", '[stages.pairs]\norder = "alternate"\n']
            )
        if task == "listwise":
            more = f"[stages.lists]\nsize = {self.draw.choice([2, 3])}\n"
        if task == "ranking" and self.some(0.15) and 'candidate = "model"' in items:
            more = '[stages.pairs]\nbaseline = "big"\n'
        points = 'points = "worth"\n' if task == "compliance" and self.some(0.5) else ""
        self.stage(name, task, items, more, templates=pool, rubrics=self.statements(points))

    def stage(self, name: str, task: str, items: str, more: str, *, templates: Sequence[str], rubrics: str) -> None:
        """A stage with one or two templates and judges."""
        used = self.draw.sample(list(templates), min(len(templates), self.draw.choice([1, 1, 2])))
        head = self.repeats()
        if task != "pairwise" and self.some(0.25):
            head += "structured = true\n"
        if self.some(0.15):
            head += f"tier = {self.draw.choice([1, 3])}\n"
        if task == "likert" and self.some(0.2):
            more += "[stages.answer]\nlogprobs = true\n"
        has_chances = [one for one in PROVIDERS if one[1] in {"gpt-4.1-mini", "mistral-small-2603"}]
        among = has_chances if "logprobs" in more else PROVIDERS
        models = self.models(min(self.draw.choice([1, 1, 2, 3]), len(among)), among)
        self.raw_stage(name, task, items, head, f"{more}{rubrics}{self.use(used)}{models}")

    def fields(self, items: str) -> None:
        """Several fields in one answer."""
        text = '[[stages.templates]]\nid = "both"\ntext = """Read {INPUT}\n{ANSWER_FORMAT}"""\n'
        self.raw_stage("judged", "prompts", items, self.repeats(), f"{text}{FIELDS}{self.models(2)}")

    def generated(self, name: str, items: str) -> None:
        """Candidates that answer."""
        template = "question_with_statement" if "rubric" in items else "question"
        rubrics = self.statements() if "rubric" in items else ""
        models = self.models(self.draw.choice([2, 3]))
        self.raw_stage(name, "generation", items, self.repeats(0.3), f"{rubrics}{self.use([template])}{models}")

    def raw_stage(self, name: str, task: str, items: str, head: str, tail: str) -> None:
        """A stage as it is written."""
        self.found.stages.append(f"{name}:{task}")
        self.parts.append(f'\n[[stages]]\nname = "{name}"\ntask = "{task}"\n{head}[stages.items]\n{items}\n{tail}')

    def repeats(self, share: float = 0.35) -> str:
        return f"repeats = {self.draw.choice([2, 3])}\n" if self.some(share) else ""

    def column(self, share: float, names: tuple[str, ...]) -> str:
        return f'\nrubric = "{self.draw.choice(names)}"' if self.some(share) else ""

    def pairs(self) -> str:
        return "[stages.pairs]\n" + self.draw.choice([
            "", "reverse = true\n", "reverse = 0.5\ncount = 20\n", "share = 0.3\n", 'path = "pairs.csv"\n',
            'block = "prompt"\nreverse = true\n', 'order = "alternate"\ncount = 11\nn_reverse = 4\n',
            'select = "adaptive"\nrounds = 2\ncount = 40\n',
        ])  # fmt: skip

    def traits(self) -> str:
        one = '[[stages.rubrics]]\nid = "{}"\nname = "{}"\ndescription = "How {} it is."\n'
        return "".join(one.format(name, name, name) for name in ("clear", "deep")[: self.draw.choice([1, 2])])

    def statements(self, points: str = "") -> str:
        return f'[stages.rubrics]\npath = "statements.jsonl"\n{points}'

    def use(self, templates: Sequence[str]) -> str:
        return "".join(f'[[stages.templates]]\nuse = "{name}"\n' for name in templates)

    def models(self, n: int, among: Sequence[tuple[str, str, tuple[str, ...]]] = PROVIDERS) -> str:
        found = ""
        for provider, model, thinking in self.draw.sample(among, n):
            kinds = json.dumps(list(thinking[: self.draw.choice([1, 2])]))
            more = f"thinking = {kinds}\n" if len(thinking) > 1 else ""
            name = f'[[stages.models]]\nprovider = "{provider}"\nmodel = "{model}"\n'
            found += f"{name}max_output_tokens = 3000\n{more}"
        return found


def drawn(seed: int) -> Drawn:
    """Return the study of a seed."""
    return _Writer(seed).study()


def rig_of(folder: Path, study: Drawn) -> StageRig:
    """Return a lake for it, with its files and judges."""
    settings = Settings(seed=study.seed, latency_s=(60.0, 600.0), judges=study.judges)
    rig = StageRig(folder / "rig", settings=settings, toml=study.toml, lake_seed=study.seed % 16)
    write(rig.study_path.parent)
    return rig


def carry_out(rig: StageRig, study: Drawn) -> Iterator[str]:
    """Ask a study to its end, and yield all that is wrong with what came of it.

    Raises BatchpondError where the study is refused, as it may be before anything is asked.
    """
    foreseen = {one.name: one.n_requests for one in rig.planned().stages}
    for moment in study.dies:
        rig.crash_in = moment
        rig.survive(partial(one_pass, rig, study.limit))
    if study.limit is not None:
        ended(rig, study.limit)
    ended(rig)
    n_asked = len(_requests(rig))
    if study.is_exact and sum(foreseen.values()) != n_asked:
        yield f"{foreseen} foreseen, {n_asked} asked: {rig.ask(_ASKED)}"
    yield from held(rig)
    yield from _grown(rig, study)


def held(rig: StageRig, *, is_whole: bool = True) -> Iterator[str]:
    """Yield all that is wrong with a study that was asked to its end; what is charged is known where it `is_whole`."""
    yield from rig.violations()
    yield from _whole(rig)
    if is_whole:
        yield from _bill(rig)
    yield from _votes(rig)
    yield from _views(rig)
    yield from _report(rig)
    yield from differences(rig)
    n_posts = rig.wire.n_create_posts
    report = rig.planned()
    if report.n_to_ask:
        yield f"planned again, {report.n_to_ask} of {report.n_requests} are to be asked anew"
    if report.is_new_version:
        yield "planned again, it is a new version"
    rig.sync()
    if rig.wire.n_create_posts != n_posts:
        yield "planned again, batches were made"


def one_pass(rig: StageRig, limit: int | None) -> None:
    rig.submit(limit)
    rig.clock.advance(700.0)
    rig.sync()


def ended(rig: StageRig, limit: int | None = None) -> None:
    """Approve and sync by turns until nothing is due: what was in doubt when a part was approved is nobody's yet."""
    for _ in range(6):
        rig.submit(limit)
        for _ in range(30):
            rig.clock.advance(1_000.0)
            report = rig.sync()
            if not report.n_pending and (not report.n_unsent or report.n_unapproved):
                break
        if not report.n_unsent and (limit is not None or not report.n_unapproved):
            return
    raise AssertionError(f"not settled: {report}")


_ASKED = "SELECT stage, count(DISTINCT request_id) AS n FROM plan_current GROUP BY ALL"
_REQUESTS = "SELECT DISTINCT request_id FROM plan_current"


def _requests(rig: StageRig) -> set[str]:
    return {row["request_id"] for row in rig.ask(_REQUESTS)}


def _grown(rig: StageRig, study: Drawn) -> Iterator[str]:
    """With one prompt more, what was asked before stands, and what is new is asked alone."""
    before = _requests(rig)
    write(rig.study_path.parent, N_PROMPTS + 1)
    rig.planned()
    ended(rig)
    yield from rig.violations()
    yield from _whole(rig)
    after = _requests(rig)
    if not study.is_drawn and before - after:
        yield f"with one prompt more, {len(before - after)} of {len(before)} requests are not those of before"


_UNANSWERED = """
SELECT count(*) AS n FROM (SELECT DISTINCT request_id FROM plan_current) AS planned
ANTI JOIN results USING (request_id)
"""
_ODD = "SELECT outcome, count(*) AS n FROM results WHERE outcome IS NULL OR outcome = 'pending' GROUP BY ALL"


def _whole(rig: StageRig) -> Iterator[str]:
    """Each planned request has a result, which says what came of it."""
    (row,) = rig.ask(_UNANSWERED)
    if row["n"]:
        yield f"{row['n']} planned requests have no result"
    yield from (f"{row['n']} results are {row['outcome']}" for row in rig.ask(_ODD))


_BILL = """
SELECT CAST(sum(input_tokens) AS BIGINT) AS input_tokens, CAST(sum(output_tokens) AS BIGINT) AS output_tokens FROM costs
"""


def _bill(rig: StageRig) -> Iterator[str]:
    """The tokens that the lake counts are those that the provider charged."""
    (row,) = rig.ask(_BILL)
    _, *billed = rig.billed()
    if [row["input_tokens"] or 0, row["output_tokens"] or 0] != billed:
        yield f"costs has {row}, the provider's ledger {billed}"


def _votes(rig: StageRig) -> Iterator[str]:
    """Rates are those of a loop over the answers, each of which is one vote, whoever asked for it how often."""
    rows = rig.ask(_ANSWERS)
    votes = {tuple(row.values()): row for row in rows}.values()
    yield from _differ(rig, "metric_failures", "n_answered", "study", _calls(votes))
    yield from _differ(rig, "metric_compliance", "compliance", "rubric_id, candidate", _complied(votes))
    yield from _differ(rig, "metric_consistency", "consistency_all", "rubric_id", _consistent(votes))


_JUDGE = "template_id, provider, request_model, thinking"
_ANSWERS = f"""
SELECT task, {_JUDGE}, rubric_id, candidate_first AS candidate, unit_id, item_first, item_second, turn_no, list_id,
  direction, request_id, outcome, verdict, origin, parser_id
FROM results WHERE coalesce(list_place, 1) = 1
"""  # a list's places share its answer
Key = tuple[Any, ...]
Votes = Iterable[dict[str, Any]]


def _judge(row: dict[str, Any], *more: str) -> Key:
    return tuple(row[name] for name in ("template_id", "provider", "request_model", "thinking", *more))


def _calls(votes: Votes) -> Mapping[Key, float]:
    return Counter((*_judge(row), "demo") for row in votes)


def _complied(votes: Votes) -> dict[Key, float]:
    of_item = defaultdict[Key, list[bool]](list)
    for row in votes:
        if row["task"] == "compliance" and row["outcome"] == "decided":
            of_item[_judge(row, "rubric_id", "candidate", "unit_id", "item_first")].append(row["verdict"] == "true")
    rates = defaultdict[Key, list[float]](list)
    for key, found in of_item.items():
        rates[key[:-2]].append(fmean(found))
    return {key: fmean(found) for key, found in rates.items()}


def _consistent(votes: Votes) -> dict[Key, float]:
    of_pair = defaultdict[Key, dict[bool, list[str]]](lambda: {True: [], False: []})
    for row in votes:
        if row["task"] in {"pairwise", "ranking"} and row["outcome"] in {"decided", "tie"}:
            first, second = row["item_first"], row["item_second"]
            better = {"first": first, "second": second}.get(row["verdict"], "tie")
            pair = (*_judge(row, "rubric_id", "unit_id"), *sorted((first, second)))
            of_pair[pair][first < second].append(better)
    rates = defaultdict[Key, list[float]](list)
    for key, orders in of_pair.items():
        if orders[True] and orders[False]:
            rates[key[:5]].append(fmean(one == other for one in orders[True] for other in orders[False]))
    return {key: fmean(found) for key, found in rates.items()}


def _differ(rig: StageRig, view: str, column: str, more: str, wanted: Mapping[Key, float]) -> Iterator[str]:
    sql = f"SELECT {_JUDGE}, {more}, {column} FROM {view} WHERE provider <> 'panel' AND {column} IS NOT NULL"
    found = {tuple(key): value for *key, value in (row.values() for row in rig.ask(sql))}
    for key in (found.keys() | wanted.keys()) - {
        one for one in found if one[0].startswith("listwise") and one not in wanted
    }:
        if abs(found.get(key, -1) - wanted.get(key, -1)) > 1e-9:
            yield f"{view}: {column} of {key} is {found.get(key)}, and {wanted.get(key)} by a loop"
            return


def _views(rig: StageRig) -> Iterator[str]:
    """Every view answers, and what it answers can be: shares, intervals, probabilities."""
    with closing(database.connect(rig.lake)) as connection:
        for name in sorted(info.name for info in database.views()):
            try:
                found = connection.execute(f'FROM "{name}"')
                names = [column for column, *_ in found.description or ()]
                rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            except duckdb.Error as error:
                yield f"view {name}: {error}"
                continue
            odd = (f"{wrong} in {row}" for row in rows if (wrong := _impossible(row)) is not None)
            yield from (f"view {name}: {wrong}" for wrong in islice(odd, 1))


def _impossible(row: dict[str, Any]) -> str | None:
    numbers = {name: value for name, value in row.items() if isinstance(value, float | int)}
    for name, value in numbers.items():
        is_share = name == "p" or name.startswith("p_")
        is_crossed = name.endswith("_lo") and numbers.get(f"{name[:-3]}_hi", value) < value
        is_less = name.startswith("n_") and value < 0
        if not math.isfinite(value) or is_crossed or is_less or (is_share and not 0 <= value <= 1):
            return f"{name} is {value}"
    return None


def _report(rig: StageRig) -> Iterator[str]:
    """The page and the text on it are made."""
    try:
        report = build.build(rig.lake, "demo")
        text(report, ReportFormat.HTML)
        said = markdown.render(report)
    except BatchpondError as error:
        yield f"report: {error}"
        return
    for word in ("None", "nan", "null", "inf"):
        if f"| {word} |" in said:
            yield f"report says {word!r}: {next(line for line in said.splitlines() if f'| {word} |' in line)[:200]}"
