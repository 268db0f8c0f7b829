"""Templates are filled in one pass, and the built-in ones work as they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.model import Outcome, Response, ResponseStatus, Verdict
from batchpond.tasks import templates
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.templates import Template, builtin
from tests.rigs.filled import fill

OF_PAIRS = PairwiseRule.PLACEHOLDERS
NAMES = OF_PAIRS.required + OF_PAIRS.optional
PLACEHOLDERS = [f"{{{name}}}" for name in NAMES]
tricky = st.lists(st.one_of(st.text(max_size=8), st.sampled_from([*PLACEHOLDERS, "{", "}", "{{", "{SAMPLE_3}"]))).map(
    "".join
)

VALUES = {"TRAIT_NAME": "Voice", "TRAIT_DESCRIPTION": "its own sound", "ANSWER_FIRST": "[1]", "ANSWER_SECOND": "[2]"}


def filled(text: str, first: str, second: str, values: dict[str, str] = VALUES) -> str:
    """Return a pairwise template about two samples."""
    return fill(OF_PAIRS, text, {**values, "SAMPLE_1": first, "SAMPLE_2": second})


@given(tricky, st.fixed_dictionaries({name: tricky for name in NAMES}))
def test_values_are_never_scanned_again(text: str, values: dict[str, str]) -> None:
    """Filling equals one regular-expression substitution, whatever braces the values hold."""
    expected = re.sub("|".join(map(re.escape, PLACEHOLDERS)), lambda m: values[m[0][1:-1]], text)
    assert fill(OF_PAIRS, text, values) == expected


def test_a_sample_that_names_a_placeholder_stays_text() -> None:
    """The first sample's `{SAMPLE_2}` is not replaced by the second."""
    text = "{TRAIT_NAME}|{TRAIT_DESCRIPTION}|{SAMPLE_1}|{SAMPLE_2}|{other}"
    assert filled(text, "{SAMPLE_2}", "b") == "Voice|its own sound|{SAMPLE_2}|b|{other}"


def test_placeholders_may_repeat_in_any_order() -> None:
    """A sample shown twice, second first, comes out so."""
    assert filled("{SAMPLE_2}{SAMPLE_1}{SAMPLE_2}", "a", "b") == "bab"


def test_missing_placeholders_are_named() -> None:
    """All that lack are listed in one error."""
    with pytest.raises(StudyError, match=r"mine\.txt: the template lacks \{TRAIT_DESCRIPTION\}, \{SAMPLE_2\}"):
        Template("t", "{TRAIT_NAME} {SAMPLE_1} {sample_2}").check("mine.txt", OF_PAIRS)


def test_the_hash_follows_the_content() -> None:
    """Same id and text, same hash; any other text, another."""
    assert Template("t", "x").template_hash == Template("t", "x").template_hash
    assert (
        len({Template("t", "x").template_hash, Template("t", "x ").template_hash, Template("u", "x").template_hash})
        == 3
    )


@pytest.mark.parametrize("template", builtin().values(), ids=lambda t: t.template_id)
def test_built_in_templates_are_complete(template: Template) -> None:
    """Every built-in template has all placeholders and ends by asking for the exact answers."""
    template.check(template.template_id, OF_PAIRS)
    rule = PairwiseRule()
    trait = templates.builtin_rubrics()["overall_quality"]
    values = {"TRAIT_NAME": trait.name, "TRAIT_DESCRIPTION": trait.description,
              "ANSWER_FIRST": rule.answers[0], "ANSWER_SECOND": rule.answers[1]}  # fmt: skip
    text = filled(template.text, "One.", "Two.", values)
    assert not re.search(r"\{[A-Z_0-9]+\}", text)
    assert text.index("One.") < text.index("Two.") < text.index(rule.answers[0]) < text.index(rule.answers[1])
    # A judge that only repeats its instructions is not counted.
    assert rule.read(Response("c", ResponseStatus.SUCCEEDED, text=text)).outcome is Outcome.AMBIGUOUS
    assert rule.read(Response("c", ResponseStatus.SUCCEEDED, text=rule.answers[1])).verdict is Verdict.SECOND


def test_there_are_five_templates_and_two_rubrics() -> None:
    """The README's lists are what the package brings."""
    assert list(builtin()) == ["concise", "order_warned", "plain", "rubric_first", "step_by_step"]
    assert list(templates.builtin_rubrics()) == ["organization", "overall_quality"]
    assert len({template.template_hash for template in builtin().values()}) == 5
