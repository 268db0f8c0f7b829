"""What a study is said to cost before it has a single answer, over kinds of studies that differ in all that counts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
import pytest

from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import StageRig
from tests.rigs.swept import every

NEAR: Final = 1.5
WORDS: Final = ("tide", "lamp", "orchard", "because", "although", "seven", "harbour", "slowly", "copper", "meadow")
USUAL: Final = (
    ("openai", "gpt-4.1-mini"), ("openai", "gpt-4o"), ("anthropic", "claude-haiku-4-5"),
    ("anthropic", "claude-sonnet-4-6"), ("gemini", "gemini-2.5-flash-lite"), ("gemini", "gemini-2.5-flash"),
)  # fmt: skip
PAIRS: Final = '[items]\npath = "texts.csv"\n[pairs]\ncount = 40\n[[rubrics]]\nuse = "overall_quality"\n'
OUTPUTS: Final = (
    '[items]\npath = "outputs.csv"\nrubric = "statement"\nunit = "prompt"\ncandidate = "model"\ninput = "question"\n'
    '[rubrics]\npath = "statements.jsonl"\n'
)
OWN: Final = '[[templates]]\nid = "own"\ntext = """\n{}"""\n'
BOTH: Final = "{TRAIT_NAME}: {TRAIT_DESCRIPTION}\nA: {SAMPLE_1}\nB: {SAMPLE_2}\n"
FIELD: Final = '[[answer.fields]]\nname = "{}"\nkind = "{}"\n{}'
SCORE: Final = (
    '[answer]\nform = "regex"\npattern = "(?im)^Difficulty: *(?P<score>[1-9])$"\nscore_min = 1\nscore_max = 9\n'
)


def used(*names: str) -> str:
    """Return built-in templates."""
    return "".join(f'[[templates]]\nuse = "{name}"\n' for name in names)


def asked(models: Sequence[tuple[str, str]] = USUAL, thinking: Sequence[str] = (), limit: int = 4_000) -> str:
    """Return models, each at all these levels of thinking."""
    levels = f"thinking = {orjson.dumps(thinking).decode()}\n" if thinking else ""
    return "".join(
        f'[[models]]\nprovider = "{provider}"\nmodel = "{model}"\nmax_output_tokens = {limit}\n{levels}'
        for provider, model in models
    )


STUDIES: Final[Mapping[str, str]] = {
    "one word": PAIRS + used("plain") + asked(),
    "one word, in other words": PAIRS + used("concise", "order_warned", "rubric_first") + asked(USUAL[1:4]),
    "in steps": PAIRS + used("step_by_step") + asked(),
    "all templates": PAIRS + used("plain", "concise", "step_by_step", "order_warned", "rubric_first") + asked(),
    "a reason": PAIRS + OWN.format(BOTH + "Explain your choice, then end with {ANSWER_FIRST} or {ANSWER_SECOND}.")
    + asked(USUAL[::2]),
    "nothing said of length": PAIRS + OWN.format(BOTH + "The better one: {ANSWER_FIRST} or {ANSWER_SECOND}?")
    + asked(USUAL[:3]),
    "efforts": PAIRS + used("plain", "step_by_step")
    + asked((("openai", "gpt-5.4-mini"), ("anthropic", "claude-sonnet-4-6")), ("low", "medium", "high"), 20_000),
    "unasked": PAIRS + used("concise")
    + asked((("openai", "gpt-5-mini"), ("openai", "gpt-5.4"), ("anthropic", "claude-sonnet-5")), (), 20_000),
    "budgets": PAIRS + used("plain")
    + asked((("anthropic", "claude-haiku-4-5"), ("gemini", "gemini-2.5-flash")), ("1024", "2048"), 20_000),
    "compliance": 'task = "compliance"\n' + OUTPUTS + used("compliance_json") + asked(),
    "compliance, brief": 'task = "compliance"\nstructured = true\n' + OUTPUTS + used("compliance_brief")
    + asked(USUAL[:2]),
    "ratings": 'task = "likert"\n' + OUTPUTS + used("likert_json") + "[answer]\nminimum = 1\nmaximum = 7\n" + asked(),
    "rankings": 'task = "ranking"\n' + OUTPUTS + used("ranking_lines", "ranking_brief") + asked(),
    "lists": 'task = "listwise"\n[items]\npath = "texts.csv"\n[lists]\nsize = 3\ncount = 20\n'
    '[[rubrics]]\nuse = "overall_quality"\n' + used("listwise_order") + asked(USUAL[::2]),
    "fields": 'structured = true\n[items]\npath = "texts.csv"\n[pairs]\ncount = 40\n'
    + OWN.format("A: {SAMPLE_1}\nB: {SAMPLE_2}\nReply with JSON and nothing else: {ANSWER_FORMAT}")
    + FIELD.format("clarity", "verdict", 'description = "which is clearer"\nexplanation = "/why"\n')
    + FIELD.format("depth", "graded", "") + asked(USUAL[:4]),
    "a number": 'task = "prompts"\n[items]\npath = "texts.csv"\n'
    + OWN.format("Hard? {INPUT}\nReply with one line and nothing else:\nDifficulty: <a whole number from 1 to 9>")
    + SCORE + asked(),
}  # fmt: skip


def text(draw: random.Random) -> str:
    """Return a text of some 40 to 300 words, with a mark of its quality."""
    words = draw.choices(WORDS, k=int(min(300, max(40, draw.lognormvariate(4.6, 0.5)))))
    return f"{' '.join(words)} [[quality={draw.random():.3f}]]"


def drawn(path: Path, name: str) -> StageRig:
    """Return a study whose items, answers and lake are its own."""
    seed = sum(name.encode())
    draw, settings = random.Random(seed), Settings(seed=seed, latency_s=LATENCY_S)
    rig = StageRig(path / "rig", settings=settings, toml=f'study = "foreseen"\n{STUDIES[name]}')
    folder = rig.study_path.parent
    texts = [f"t{n},{text(draw)}" for n in range(12)]
    (folder / "texts.csv").write_text("\n".join(["id,text", *texts]) + "\n")
    rows = [
        f"o{n},{text(draw)},s{n // 2 % 2},p{n // 2},{'one' if n % 2 else 'two'},What about number {n // 2}?"
        for n in range(40)
    ]
    (folder / "outputs.csv").write_text("\n".join(["id,text,statement,prompt,model,question", *rows]) + "\n")
    statements = [orjson.dumps({"id": f"s{n}", "text": "It says what is so, and no more."}).decode() for n in (0, 1)]
    (folder / "statements.jsonl").write_text("\n".join(statements) + "\n")
    return rig


@pytest.mark.parametrize("name", every(2, STUDIES))
def test_before_any_answer_the_total_is_within_a_factor_and_never_above_worst(tmp_path: Path, name: str) -> None:
    """The forecast goes by what prompts ask for, the simulator by how it is asked: neither knows the other."""
    rig = drawn(tmp_path, name)
    said = rig.planned()
    assert said.n_answered_already == 0
    preview = rig.submit(study="foreseen").preview
    assert preview.cost_expected_usd == pytest.approx(said.cost.expected_usd, rel=0.01)
    rig.finish()
    ((actual_usd, n_answers),) = rig.rows(
        "select sum(cost_usd), count(*) from responses where status = 'succeeded'", "responses"
    )
    assert n_answers == said.n_to_ask
    expected, worst = said.cost.expected_usd, said.cost.worst_usd
    assert expected is not None
    assert worst is not None
    assert float(str(actual_usd)) <= worst
    assert 1 / NEAR <= expected / float(str(actual_usd)) <= NEAR
