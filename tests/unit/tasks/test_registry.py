"""Every task is whole: rule, templates, placeholders; and every reader is total, linear and honest about failures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import LakeError, StudyError
from batchpond.model import Finish, Outcome, Response, Role, Turn
from batchpond.study.statements import rubric_of
from batchpond.tasks import registry, templates
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.pressure import Tactic, transcript
from tests.rigs.filled import fill
from tests.rigs.swept import every
from tests.rigs.task import ANY_TEXT, FAILURES, HOSTILE, answered, check_judgment, responses, rule_of, seconds

# By name: a rule, and a text that it reads.
CASES: dict[str, tuple[Rule, str]] = {
    "pairwise": (rule_of("pairwise"), "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"),
    "generation": (rule_of("generation"), "An answer."),
    "ranking": (rule_of("ranking"), "Model: A\n"),
    "compliance": (rule_of("compliance"), '{"compliant": true, "confidence": 1}'),
    "likert": (rule_of("likert"), '{"rating": 4, "explanation": "why"}'),
    "likert-line": (rule_of("likert", form="line"), "Rating: 4\n"),
    "pressure": (rule_of("pressure"), '{"label": "soft_flip"}'),
    "pressure-keywords": (rule_of("pressure", reader="keywords"), "I stand corrected."),
    "prompts-regex": (
        rule_of("prompts", pattern=r"(?im)^score: (?P<score>\d+)"),
        "Score: 3\n",
    ),
    "prompts-json": (
        rule_of("prompts", form="json", fields={"label": "/label"}),
        '{"label": "x"}',
    ),
    "inputs": (rule_of("inputs"), '["one", "two"]'),
    "listwise": (rule_of("listwise"), '{"order": "C > A > D > B"}'),
    "listwise-best": (rule_of("listwise", reader="best", none="none"), '{"best": "B"}'),
}
SHOWN = ("TRAIT_NAME", "TRAIT_DESCRIPTION", "SAMPLE_1", "SAMPLE_2", "SAMPLES")
# Of four times the text: 4 where the time is linear, 16 where it is quadratic.
GROWTH_MAX = 9
NOTICED_S = 0.1
each_case = pytest.mark.parametrize("name", CASES)
each_task = pytest.mark.parametrize("name", registry.NAMES)


@each_case
def test_an_answer_is_read_and_a_failure_keeps_its_name(name: str) -> None:
    """The same failures have the same outcomes in every task, even where an answer's text came along."""
    rule, text = CASES[name]
    assert rule.read(answered(text)).outcome is Outcome.DECIDED
    for failed, outcome in FAILURES:
        assert rule.read(failed(text)) == Judgment(None, outcome)


@each_case
def test_thoughts_are_not_read(name: str) -> None:
    """Only the visible text answers."""
    rule, text = CASES[name]
    thinking = Response("c", answered("").status, finish=Finish.STOP, text="", thoughts=text)
    assert rule.read(thinking).outcome is Outcome.EMPTY


@each_case
@given(st.data())
def test_readers_are_total(name: str, data: st.DataObject) -> None:
    """Any response gives a judgment whose parts fit each other and can be stored."""
    rule, text = CASES[name]
    check_judgment(rule.read(data.draw(responses)))
    pieces = st.one_of(ANY_TEXT, st.sampled_from([text, text[:-2], "{", "}", '"', "\n", ",", "[", "true", "{{", ":"]))
    check_judgment(rule.read(answered("".join(data.draw(st.lists(pieces))))))


@pytest.mark.parametrize("name", every(2, CASES))
def test_readers_are_linear(name: str) -> None:
    """A long text of anything takes about four times as long as a quarter of it, and is no answer unless it is one."""
    rule, text = CASES[name]

    def took(hostile: str) -> float:
        return seconds(lambda: check_judgment(rule.read(answered(hostile + "\n" + text))))

    slow = {}
    for hostile in HOSTILE:
        if took(hostile) > NOTICED_S:
            quarter = min(took(hostile[: len(hostile) // 4]) for _ in range(3))
            whole = min(took(hostile) for _ in range(3))
            if whole > GROWTH_MAX * quarter:
                slow[hostile[:20]] = whole / quarter
    assert not slow


@each_case
def test_a_stored_rule_reads_like_the_written_one(name: str) -> None:
    """What `studies.parsers` keeps is enough to judge again under the same name; damage is told."""
    rule, text = CASES[name]
    spec = dict(rule.to_spec())
    again = registry.rule_of(spec)
    assert again == rule
    assert again.parser_id == rule.parser_id
    assert registry.rule_of(spec).read(answered(text)) == rule.read(answered(text))
    for part in set(spec) - {"answer_first", "answer_second"}:
        with pytest.raises(LakeError):
            registry.rule_of({key: value for key, value in spec.items() if key != part} | {"task": "x"})
        if part in {"task", "reader"}:
            continue
        with pytest.raises(LakeError):
            registry.rule_of({**spec, part: object()})
        with pytest.raises(LakeError):
            registry.rule_of({key: value for key, value in spec.items() if key != part})


def test_rules_have_names_of_their_own() -> None:
    """No two rules share a parser_id, and the pairwise one has not changed since its first answers."""
    assert len({rule.parser_id for rule, _ in CASES.values()}) == len(CASES)
    assert CASES["pairwise"][0].parser_id == "pairwise-1-yorng5lr"
    for rule, _ in CASES.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)?-\d+-[a-z2-7]{8}", rule.parser_id)


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("ranking", {"frist": "A"}, "did you mean `first`"),
        ("ranking", {"first": 1}, "must be a string"),
        ("ranking", {"first": "x" * 20_000}, "longer than 10,000 characters"),
        ("likert", {"maximum": "5"}, "must be a number"),
        ("likert", {"maximum": True}, "must be a number"),
        ("likert", {"maximum": 1e300}, "not between"),
        ("likert", {"is_whole": 1}, "true or false"),
        ("pressure", {"labels": {"a": 1}}, "must be a string or a list of strings"),
        ("pressure", {"reader": "keyword"}, "not one of judge, keywords"),
        ("pressure", {"reader": ["judge"]}, "not one of"),
        ("prompts", {"fields": ["/a"], "form": "json"}, "must be a table"),
        ("inputs", {"count": 2.5}, "must be a whole number"),
        ("generation", {"a": 1}, "is not a known key"),
    ],
)
def test_settings_are_checked_by_name_and_kind(task: str, settings: dict[str, Any], message: str) -> None:
    """A wrong setting is a StudyError that names it."""
    with pytest.raises(StudyError) as caught:
        rule_of(task, **settings)
    assert message in f"{caught.value} {caught.value.hint}"
    assert str(caught.value).startswith("study.toml: answer")


def test_an_unknown_task_is_told() -> None:
    """Of a study in a lake; in a file it is one of a few words."""
    for name in ("rankings", None, 3, ["ranking"]):
        with pytest.raises(LakeError, match="cannot read"):
            registry.rule_of({"task": name})
    with pytest.raises(LakeError, match="with the reader 'x'"):
        registry.rule_of({**CASES["pressure"][0].to_spec(), "reader": "x"})


def statement() -> dict[str, str]:
    """Return what a statement with everything fills in."""
    said = ("A case", "Do it?", "Yes, at once.", "No, because")
    example = dict(zip(("description", "user_query", "bad_response", "good_response"), said, strict=True))
    entry = {"id": "s1", "text": "Never {OUTPUT} lies.", "type": "prohibition", "authority_level": "platform"}
    return dict(rubric_of({**entry, "section": "Honesty", "subsection": "", "examples": [example, {}]}).more)


def values() -> dict[str, str]:
    """Return something for every placeholder, in words that show where it went."""
    own = ("INPUT", "INPUT_ID", "OUTPUT", "OUTPUT_A", "OUTPUT_B", "QUESTION", "CONVERSATION", "CATEGORY", "SCENARIO")
    return {**{name: f"<<{name} {{STATEMENT}}>>" for name in own}, **statement()}


@each_task
def test_every_task_brings_templates_that_fit_its_rule(name: str) -> None:
    """Each built-in template is complete, fills without a placeholder left, and values stay plain text."""
    found = templates.builtin(name)
    assert found
    for template in found.values():
        rule = rule_for(name, template.template_id)
        template.check(template.template_id, rule.placeholders)
        given = values() | {key: key.lower() for key in SHOWN}
        text = fill(rule.placeholders, template.text, {**rule.values(), **given})
        left = re.sub(r"<<\w+ \{STATEMENT\}>>|Never \{OUTPUT\} lies", "", text)
        assert not re.search(r"\{[A-Z_0-9]+\}", left)
        for required in rule.placeholders.required:
            assert given[required] in text


def rule_for(task: str, template_id: str) -> Rule:
    """Return the rule that a built-in template is written for."""
    settings = {"prompts": {"pattern": "(?P<label>a)"}, "inputs": {"step": template_id.removeprefix("inputs_")}}
    return rule_of(task, **settings.get(task, {}))


@each_task
def test_an_echo_of_the_instructions_is_no_answer(name: str) -> None:
    """A judge that only repeats its prompt decides nothing."""
    for template in templates.builtin(name).values() if name not in {"generation", "prompts", "inputs"} else ():
        rule = rule_for(name, template.template_id)
        given = values() | {key: key.lower() for key in SHOWN}
        judgment = rule.read(answered(fill(rule.placeholders, template.text, {**rule.values(), **given})))
        assert judgment.outcome in {Outcome.UNPARSED, Outcome.AMBIGUOUS}, template.template_id


def test_template_names_are_unique_among_tasks() -> None:
    """`batchpond templates NAME` needs no task, and every folder of templates is a task's."""
    names = [template for task in templates.tasks() for template in templates.builtin(task)]
    assert len(names) == len(set(names))
    assert set(templates.tasks()) == set(registry.NAMES)
    assert templates.tasks()[0] == "pairwise"
    assert templates.builtin("nothing") == {}


@each_case
def test_a_rules_own_values_are_known_placeholders(name: str) -> None:
    """What a rule fills in can stand in its templates."""
    rule, _ = CASES[name]
    known = rule.placeholders.required + rule.placeholders.optional
    assert set(rule.values()) <= set(known) | {"ANSWER_FIRST", "ANSWER_SECOND"} & set(known)


@each_case
def test_a_word_in_braces_is_a_placeholder_or_an_error(name: str) -> None:
    """A paid model would read it as it stands: D1 of mission, for every task."""
    rule, _ = CASES[name]
    text = "\n".join(f"{{{known}}}" for known in rule.placeholders.required)
    for word in ("{REFERENCE}", "{quality_score}", "{SAMPLE_3}", "{item.author}", "{ " + "INPUT" + " }", "{{name}}"):
        with pytest.raises(StudyError, match=r"^t\.txt: line \d+: .* is no placeholder here$"):
            templates.Template("t", f"{text}\n{word}").check("t.txt", rule.placeholders)
    for meant in ('{"score": 1}', "{}", "{ }", "{1}", "{a, b}", "{a|b}", "{{", "}", "{%x%}", "{a b}"):
        templates.Template("t", f"{text}\n{meant}").check("t.txt", rule.placeholders)


def test_a_misspelt_placeholder_is_told_with_its_line_and_the_names_there_are() -> None:
    """All of them at once, and how to say that a word is meant."""
    placeholders = templates.Placeholders(("STATEMENT", "INPUT"), ("OUTPUT",))
    with pytest.raises(StudyError) as caught:
        templates.Template("t", "{STATMENT}\n{STATEMENT} {input}\n{INPUT} {json}").check("t.txt", placeholders)
    assert caught.value.message.splitlines() == [
        "t.txt: line 1: {STATMENT} is no placeholder here",
        "t.txt: line 2: {input} is no placeholder here",
        "t.txt: line 3: {json} is no placeholder here",
    ]
    assert caught.value.hint == (
        "did you mean {STATEMENT} or {INPUT}? placeholders here: {STATEMENT}, {INPUT}, {OUTPUT}, {item.COLUMN}, "
        "{statement.COLUMN}, {answers.STAGE.COLUMN}; "
        'what a model is to read as it stands: literal = ["STATMENT", "input", "json"]'
    )


@pytest.mark.parametrize("literal", [["json", "x"], ["{json}", "{x}"]])
def test_a_declared_word_is_sent_as_it_stands(literal: list[str]) -> None:
    """With all its braces: a declaration changes nothing of what is asked."""
    placeholders = templates.Placeholders(("INPUT",), ("OUTPUT",))
    text = "{INPUT} as {json} and {{x}}"
    templates.Template("t", text).check("t.txt", placeholders, literal)
    assert fill(placeholders, text, {"INPUT": "{json}"}) == "{json} as {json} and {{x}}"
    with pytest.raises(StudyError, match=r"\{OUTPUT\} is filled in here, so it cannot be literal"):
        templates.Template("t", text).check("t.txt", placeholders, [*literal, "OUTPUT"])


def test_what_presses_a_model_has_no_placeholder_but_the_question() -> None:
    """Phrases are sent as they stand; an opening is filled with the question."""
    for phrases, opening in ((("Really, {NAME}?",), ""), (("Really?",), "{QUESTION} {NAME}"), (("{QUESTION}",), "")):
        with pytest.raises(StudyError, match=r"is no placeholder here"):
            Tactic("t", "doubt", phrases, opening).check("t")
        if "{NAME}" in phrases[0] + opening:
            Tactic("t", "doubt", phrases, opening).check("t", ["NAME"])


def test_statements_show_what_is_known_of_them() -> None:
    """Parts of examples that are blank are left out, and nothing known is said to be nothing."""
    shown = statement()
    assert shown["SUBSECTION"] == "(none)"
    assert shown["EXAMPLES"] == (
        "Example 1: A case\n- Request: Do it?\n- Goes against the statement: Yes, at once.\n"
        "- In line with the statement: No, because\n\nExample 2"
    )
    assert dict(rubric_of({"id": "s", "text": "t"}).more)["EXAMPLES"] == "(none)"


def test_a_transcript_counts_its_messages() -> None:
    """An answer that imitates a heading does not add a message."""
    messages = [Turn(Role.USER, "Q"), Turn(Role.ASSISTANT, "[3. user]\nI give in")]
    assert transcript(messages) == (
        "(2 messages)\n\n[1. user]\nQ\n[end of 1.]\n\n[2. assistant]\n[3. user]\nI give in\n[end of 2.]"
    )


@each_case
def test_schemas_ask_for_what_is_read(name: str) -> None:
    """A schema has every key required and no other allowed, in the subset that providers take."""
    schema = CASES[name][0].output_schema()
    if schema is None:
        return
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert not {"minimum", "maximum", "pattern"} & set(re.findall(r"\w+", str(schema)))
