"""Simulated models answer every task as it asks: its rule reads them, and planted rates come back."""

from __future__ import annotations

from collections import Counter
from itertools import count

import orjson
import pytest

from batchpond.model import Outcome, Response
from batchpond.tasks import compliance, inputs, likert, pairwise, pressure, prompts, ranking
from batchpond.tasks import pressure as pressure_keywords
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.listwise import BestRule, OrderRule
from batchpond.tasks.pressure import conversation, tactics, transcript
from batchpond.tasks.templates import builtin as templates
from batchpond_sim import SimulatorError
from batchpond_sim.judges.judge import Panel, parse_judge
from tests.rigs.filled import fill
from tests.rigs.task import answered

N = 400
VALUES = {
    "STATEMENT": "The assistant should be honest.", "INPUT": "Is it so?", "QUESTION": "Is it so?", "PRESSURE": "No.",
    "TRAIT_NAME": "clarity", "TRAIT_DESCRIPTION": "how clear it is", "COUNT": "4", "CATEGORY": "k", "SCENARIO": "s",
}  # fmt: skip
RULES: dict[str, Rule] = {
    "pairwise": pairwise.PairwiseRule(),
    "ranking": ranking.RankingRule(),
    "compliance": compliance.ComplianceRule(),
    "likert": likert.LikertRule(),
    "pressure": pressure.PressureRule(),
}


class Models:
    """Simulated models by settings, asked one prompt after the other."""

    def __init__(self, *judges: str, seed: int = 3) -> None:
        self._panel = Panel(seed)
        self._panel.judges = tuple(map(parse_judge, judges))
        self._keys = count()

    def say(self, prompt: str, model: str = "m", key: str = "") -> Response:
        """Return what a model answers."""
        return answered(self._panel.answer(model, prompt, key or str(next(self._keys))).text)

    def answers(self, n: int = N, model: str = "m") -> list[str]:
        """Return answers to as many questions."""
        return [str(self.say(f"Question {number}?", model).text) for number in range(n)]


def prompt(task: str, rule: Rule, template: str, **values: str) -> str:
    """Return a filled built-in template."""
    return fill(rule.placeholders, templates(task)[template].text, {**VALUES, **rule.values(), **values})


def judged(models: Models, task: str, template: str, **values: str) -> Judgment:
    """Return what a task's rule reads from a simulated judge, whichever reader reads it."""
    rule = RULES[task]
    response = models.say(prompt(task, rule, template, **values))
    assert rule.read_with_care(response) == rule.read(response), response.text
    return rule.read(response)


@pytest.mark.parametrize("task", ["ranking", "compliance", "likert", "pressure", "pairwise"])
def test_every_built_in_template_gets_an_answer_that_its_rule_reads(task: str) -> None:
    models = Models()
    one, two = models.answers(2)
    for name in templates(task):
        found = judged(models, task, name, OUTPUT=one, OUTPUT_A=one, OUTPUT_B=two, SAMPLE_1=one, SAMPLE_2=two,
                       CONVERSATION=one)  # fmt: skip
        assert found.outcome is Outcome.DECIDED, name


@pytest.mark.parametrize("step", ["categories", "scenarios", "questions"])
def test_lists_of_inputs_have_as_many_entries_as_asked(step: str) -> None:
    rule = inputs.InputsRule(step=step, count=4)
    text = Models().say(prompt("inputs", rule, f"inputs_{step}")).text or ""
    assert len(inputs.entries(text, rule)) == 4


def test_answers_differ_by_model_and_prompt_and_stay_the_same_for_the_same_request() -> None:
    models = Models()
    assert models.say("Why?", "a", "k").text == models.say("Why?", "a", "k").text
    texts = {models.say(question, model, "k").text for question in ("Why?", "How?") for model in ("a", "b")}
    assert len(texts) == 4


def test_the_planted_compliance_rate_is_recovered_and_judges_agree_unless_they_mislabel() -> None:
    models = Models("*:compliance_rate=0.3")
    outputs = models.answers()
    one, two = ([judged(models, "compliance", name, OUTPUT=output).verdict for output in outputs]
                for name in ("compliance_json", "compliance_brief"))  # fmt: skip
    assert one == two
    assert one.count("true") / N == pytest.approx(0.3, abs=0.08)
    noisy = Models("*:compliance_rate=0.3,mislabel_rate=0.2")
    three = [judged(noisy, "compliance", "compliance_json", OUTPUT=output).verdict for output in outputs]
    assert sum(a != b for a, b in zip(one, three, strict=True)) / N == pytest.approx(0.2, abs=0.08)


def test_failures_of_judges_come_at_their_planted_rates() -> None:
    models = Models("*:not_applicable_rate=0.2,unsure_rate=0.2,tie_rate=0.2,unparsed_rate=0.1")
    one, two = models.answers(2)
    found = Counter(
        judged(models, "ranking", "ranking_lines", OUTPUT_A=one, OUTPUT_B=two, INPUT=str(n)).outcome for n in range(N)
    )
    expected = {Outcome.NOT_APPLICABLE: 0.2, Outcome.UNSURE: 0.2, Outcome.TIE: 0.2, Outcome.UNPARSED: 0.1}
    for outcome, rate in expected.items():
        assert found[outcome] / N == pytest.approx(rate, abs=0.08)


def test_the_stronger_candidate_wins_more_often() -> None:
    models = Models("strong:strength=0.8", "weak:strength=0.3")
    pairs = zip(models.answers(100, "strong"), models.answers(100, "weak"), strict=True)
    wins = [judged(models, "ranking", "ranking_brief", OUTPUT_A=a, OUTPUT_B=b).verdict == "first" for a, b in pairs]
    assert sum(wins) > 85


def test_pressed_models_give_in_at_the_planted_rate_at_each_level_and_stay_so() -> None:
    models = Models("*:flip_rate=0.4,soft_rate=0.5,wrong_rate=0.1")
    tactic = tactics()["false_research"]
    counts: Counter[str] = Counter()
    for number in range(N):
        said: list[str] = []
        labels = []
        for _ in range(3):
            messages = conversation(f"Question {number}?", said, tactic)
            said.append(str(models.say("\n\n".join(message.text for message in messages)).text))
            found = judged(models, "pressure", "pressure_label", OUTPUT=said[-1], FIRST_OUTPUT=said[0],
                           CONVERSATION=transcript(messages))  # fmt: skip
            labels.append(str(found.label))
        counts["wrong"] += labels[0] == "initially_wrong"
        counts["right"] += labels[0] == "no_flip"
        counts["flipped at 1"] += labels[1].endswith("_flip") and labels[1] != "no_flip"
        counts["held at 1"] += labels[1] == "no_flip"
        if labels[1] in ("soft_flip", "explicit_flip"):
            assert labels[2] == labels[1]
    assert counts["wrong"] / N == pytest.approx(0.1, abs=0.05)
    assert counts["flipped at 1"] / (counts["flipped at 1"] + counts["held at 1"]) == pytest.approx(0.4, abs=0.08)


def test_the_keyword_scorer_agrees_with_what_simulated_models_say() -> None:
    rule = pressure_keywords.KeywordRule()
    models = Models("*:flip_rate=0.5")
    (first,) = models.answers(1)
    for number in range(50):
        said = str(models.say(f"Question?\n\n{first}\n\nNo, {number}.").text)
        label = judged(models, "pressure", "pressure_label", OUTPUT=said, CONVERSATION=first).label
        assert rule.read(answered(said)).label == label


def test_a_prompt_with_a_json_form_of_its_own_is_filled_in() -> None:
    rule = prompts.PromptsRule(form="json", fields={"label": "/kind", "score": "/points"})
    said = Models().say('Answer as {"kind": one of red, green, "points": a whole number from 1 to 9}')
    found = rule.read(said)
    assert found.label in ("red", "green")
    assert found.score is not None
    assert 1 <= found.score <= 9


@pytest.mark.parametrize("spec", ["m:flip_rate=1.5", "m:compliance_rate=-0.1", "m:strength=2", "m:unsure_rate=2"])
def test_rates_out_of_range_are_refused(spec: str) -> None:
    with pytest.raises(SimulatorError):
        parse_judge(spec)


def test_a_list_is_put_in_order_by_quality_and_place() -> None:
    """Plackett and Luce's model: what is better or stands earlier comes first more often, in the form asked for."""
    rule, best = OrderRule(size=3, ties=True, none="none"), BestRule(size=3)
    texts = ["one [[quality=0.2]]", "two [[quality=0.9]]", "three [[quality=0.2]]"]

    def said(judge: str, asked: OrderRule, n: int = 300) -> Counter[str | None]:
        panel = Panel(1)
        panel.judges = (parse_judge(judge),)
        prompt = f"Which?\n\n{asked.shown(texts)}\n\nReply: {asked.values()['ANSWER_FORMAT']}"
        return Counter(asked.label(orjson.loads(panel.answer("m", prompt, str(at)).text)[asked.key]) for at in range(n))

    fair = said("*:sharpness=4", rule)
    firsts = Counter({letter: sum(n for label, n in fair.items() if label and label[0] == letter) for letter in "ABC"})
    assert set(fair) >= {"B>A>C", "B>C>A", "A>B>C", "C>B>A"}
    assert 250 < firsts["B"] < 285  # e^2.8 / (e^2.8 + 2) = .89 of 300
    assert abs(firsts["A"] - firsts["C"]) < 30
    biased = said("*:sharpness=0,position_bias=3", best)
    assert biased["A"] > biased["B"] > biased["C"]
    assert set(said("*:tie_rate=1", rule, 5)) == {"A=B=C"}
    assert set(said("*:not_applicable_rate=1", rule, 5)) == {"none"}
    assert set(said("*:both_tags_rate=1", rule, 5)) == {None}
