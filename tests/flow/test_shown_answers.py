"""A prompt shows what another stage said about the same, `{answers.STAGE.COLUMN}`, checked when a study is planned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from batchpond.errors import StudyError
from batchpond.study import file as study_file
from batchpond.study.spec import StageSpec
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import StageRig, models, stage, use

QUESTIONS = ["id,text", "q1,One?", "q2,Two?", "q3,Three?"]
HONEST = '[[stages.rubrics]]\nid = "honest"\nname = "Honest"\ndescription = "It says what is so."\n'
BY = '[[stages.templates]]\nid = "{}"\ntext = """\n{}"""\n'
JUDGE = "{STATEMENT}\n{INPUT}\n{OUTPUT}\n"
SAW = "select r.*, q.body, q.estimated_input_tokens as tokens from results as r join requests as q using (request_id)"


def answers(*names: str, more: str = "") -> str:
    """Return a stage in which models answer the questions."""
    return stage("answers", "generation", 'path = "asked.csv"', f"{more}---{use('question')}{models(*names)}")


def judged(name: str, items: str, text: str, *names: str, rubrics: str = HONEST, more: str = "") -> str:
    """Return a stage of judges who see `text` besides what they judge."""
    template = BY.format(f"by_{name}", f"{JUDGE}{text}\n{{ANSWER_FORMAT}}")
    return stage(name, "compliance", items, f"{more}---{rubrics}{template}{models(*names)}")


def rig_of(path: Path, *stages: str, faults: tuple[str, ...] = ()) -> StageRig:
    """Return a rig with three questions."""
    settings = Settings(seed=1, latency_s=LATENCY_S, faults=faults, judges=("*:compliance_rate=0.5",))
    rig = StageRig(path / "rig", settings=settings, toml='study = "demo"\n' + "".join(stages))
    (rig.study_path.parent / "asked.csv").write_text("\n".join(QUESTIONS) + "\n")
    return rig


def finished(rig: StageRig) -> StageRig:
    """Bring a study to its end: nothing is lost, and planning again writes nothing."""
    rig.plan()
    rig.submit()
    rig.finish()
    before = rig.tree()
    rig.plan()
    assert rig.tree() == before
    assert rig.violations() == []
    return rig


def prompts(rig: StageRig, name: str) -> dict[tuple[str, str], str]:
    """Return what each request of a stage says, by its item and rubric."""
    rows = rig.ask(f"{SAW} where stage = '{name}'")
    return {(row["item_first"], row["rubric_id"]): json.loads(row["body"])["messages"][0]["content"] for row in rows}


def test_answers_that_are_shown_several_times_over_are_told(tmp_path: Path) -> None:
    """A judge that is to see the reference sees each repeat of it, and `plan` says so before anything is bought."""
    for times in (1, 3):
        once = answers("gpt-5.4-mini").replace('"answers"', '"reference"', 1)
        stages = (answers("gpt-5.4-nano", more=f"repeats = {times}\n"), once, judged(
            "judges", 'stage = "answers"', "{answers.reference.text} {answers.answers.text}", "gpt-5.4-mini"
        ))  # fmt: skip
        rig = rig_of(tmp_path / f"{times}", *stages)
        told = [note for note in rig.planned().notes if "one after the other" in note]
        assert [note.partition(" shows all 3 answers")[0] for note in told] == (
            ["stage judges: {answers.answers.text}"] if times == 3 else []
        )
    finished(rig)
    (row, *_) = rig.ask(f"{SAW} where stage = 'judges' and unit_id = 'q1'")
    texts = [one["text"] for one in rig.ask("select text from results where stage = 'answers' and item_first = 'q1'")]
    assert len(texts) == 3
    assert all(text in json.loads(row["body"])["messages"][0]["content"] for text in texts)


SECOND = "Another judge says {answers.first.verdict}: {answers.first.explanation}\n<{answers.answers.text}>"


def test_a_judge_sees_verdict_and_reason_of_another_and_the_output_itself(tmp_path: Path) -> None:
    """By its own rubric, of its own output: nothing of another item, rubric or candidate is ever shown."""
    rubrics = HONEST + HONEST.replace("honest", "brief")
    rig = rig_of(
        tmp_path,
        answers("gpt-4o", "gpt-4o-mini"),
        judged("first", 'stage = "answers"', "", "gpt-4.1-mini", rubrics=rubrics),
        judged("second", 'stage = "answers"', SECOND, "gpt-5.4-mini", rubrics=rubrics),
    )
    finished(rig)
    shown = prompts(rig, "second")
    assert len(shown) == 3 * 2 * 2
    outputs = {f"{row['unit_id']}/{row['candidate_first']}": row["text"]
               for row in rig.ask("select * from results where stage = 'answers'")}  # fmt: skip
    said = rig.ask("select * from results where stage = 'first'")
    assert len({row["verdict"] for row in said}) == 2
    for row in said:
        text = shown[row["item_first"], row["rubric_id"]]
        wanted = f"Another judge says {row['verdict']}: {row['explanation']}\n<{outputs[row['item_first']]}>\n"
        assert wanted in text


def test_it_waits_for_the_stage_that_it_names_alone(tmp_path: Path) -> None:
    rig = rig_of(
        tmp_path,
        answers("gpt-4o"),
        judged("first", 'stage = "answers"', "", "gpt-4.1-mini"),
        judged("second", 'stage = "answers"', SECOND, "gpt-5.4-mini"),
        judged("third", 'stage = "answers"', "", "gpt-4o"),
    )
    report = rig.planned()
    assert {one.name: one.waits_for for one in report.stages} == {
        "answers": (), "first": ("answers",), "second": ("answers", "first"), "third": ("answers",)
    }  # fmt: skip
    rig.submit()
    rig.finish()
    rounds = {row["stage"]: row["round_no"] for row in rig.ask("select distinct stage, round_no from results")}
    assert rounds["answers"] < rounds["first"] < rounds["second"]
    assert rounds["third"] < rounds["second"]


def test_a_reference_is_what_another_model_answered_to_the_same_question(tmp_path: Path) -> None:
    """Of the unit: in judgments of one output, and in rankings of two."""
    ranked = BY.format("r", "{STATEMENT} {INPUT} <{answers.reference.text}> {OUTPUT_A} {OUTPUT_B}")
    rig = rig_of(
        tmp_path,
        answers("gpt-5.4-mini").replace('"answers"', '"reference"'),
        answers("gpt-4o", "gpt-4o-mini"),
        judged("verdicts", 'stage = "answers"', "<{answers.reference.text}>", "gpt-4.1-mini"),
        stage("ranking", "ranking", 'stage = "answers"', f"---{HONEST}{ranked}{models('gpt-4.1-mini')}"),
    )
    finished(rig)
    right = {row["unit_id"]: row["text"] for row in rig.ask("select * from results where stage = 'reference'")}
    for name, n in (("verdicts", 3 * 2), ("ranking", 3 * 2)):
        found = rig.ask(f"{SAW} where stage = '{name}'")
        assert len(found) == n
        assert all(f"<{right[row['unit_id']]}>" in json.loads(row["body"])["messages"][0]["content"] for row in found)


def test_a_judge_has_answered_itself_before_it_sees_the_answer(tmp_path: Path) -> None:
    """By a built-in template: what it says of the question is bought first, without the answer, and shown beside it."""
    own = answers("gpt-5.4-mini").replace('"answers"', '"own"')
    stages = own, answers("gpt-4o"), judged_by("compliance_own_answer", 'stage = "answers"', "gpt-5.4-mini")
    rig = finished(rig_of(tmp_path, *stages))
    said = {row["unit_id"]: row["text"] for row in rig.ask("select * from results where stage = 'own'")}
    found = rig.ask(f"{SAW} where stage = 'judge'")
    assert len(found) == 3
    assert {row["outcome"] for row in found} == {"decided"}
    for row in found:
        asked = json.loads(row["body"])["messages"][0]["content"]
        mine, _, theirs = asked.partition("=== end of what you answered ===")
        assert said[row["unit_id"]] in mine
        assert said[row["unit_id"]] not in theirs


@pytest.mark.parametrize("task", ["compliance", "likert"])
def test_a_judge_is_guided_by_a_reference_in_a_column(tmp_path: Path, task: str) -> None:
    """By a built-in template; without the column the plan stops, and nothing is asked."""
    rows = 'path = "told.csv"\ninput = "question"'
    judge = judged_by(f"{task}_reference", rows, "gpt-5.4-mini").replace('"compliance"', f'"{task}"')
    rig = rig_of(tmp_path, judge)
    told = rig.study_path.parent / "told.csv"
    told.write_text("id,text,question\na,It was 1912.,When?\n")
    with pytest.raises(StudyError, match=r"item\.reference"):
        rig.plan()
    told.write_text("id,text,question,reference\na,It was 1912.,When?,In 1913.\n")
    ((_, asked),) = prompts(finished(rig), "judge").items()
    shown = re.findall("=== (?:Request|Reference|Answer to be (?:checked|rated)) ===\n(.*)", asked)
    assert shown == ["When?", "In 1913.", "It was 1912."]
    assert rig.ask("select outcome from results") == [{"outcome": "decided"}]


def judged_by(template: str, items: str, model: str) -> str:
    """Return a stage `judge` that asks a model by a built-in template."""
    return stage("judge", "compliance", items, f"---{HONEST}{use(template)}{models(model)}")


def test_a_judge_of_pairs_sees_what_was_said_of_them_in_this_order(tmp_path: Path) -> None:
    pairs = '[[stages.rubrics]]\nuse = "overall_quality"\n'
    text = "{TRAIT_NAME} {TRAIT_DESCRIPTION} <{answers.first.verdict}> {SAMPLE_1} {SAMPLE_2} {ANSWER_FIRST}"
    rig = rig_of(
        tmp_path,
        stage("first", "pairwise", 'path = "asked.csv"', f"---{pairs}{use('plain')}{models('gpt-4o')}"),
        stage("second", "pairwise", 'stage = "first"', f"---{pairs}{BY.format('b', text)}{models('gpt-4.1-mini')}"),
    )
    finished(rig)
    said = {(row["item_first"], row["item_second"]): row["verdict"]
            for row in rig.ask("select * from results where stage = 'first'")}  # fmt: skip
    found = rig.ask(f"{SAW} where stage = 'second'")
    assert len(found) == 6
    assert {"first", "second"} == set(said.values())
    assert all(f"<{said[row['item_first'], row['item_second']]}>" in row["body"] for row in found)


def test_of_a_stage_that_asks_in_several_ways_all_answers_are_shown_in_its_order(tmp_path: Path) -> None:
    names = ("gpt-4o", "gpt-4o-mini", "gpt-4.1-mini")
    rig = rig_of(
        tmp_path,
        answers("gpt-5.4-mini"),
        judged("panel", 'stage = "answers"', "", *names),
        judged("chair", 'stage = "answers"', "<{answers.panel.verdict}|{answers.panel.confidence}>", "gpt-5.4-nano"),
    )
    finished(rig)
    said: dict[str, list[tuple[str, float]]] = {}
    for row in rig.ask("select * from results where stage = 'panel' order by slot"):
        said.setdefault(row["item_first"], []).append((row["verdict"], row["confidence"]))
    for (item, _), text in prompts(rig, "chair").items():
        verdicts, shares = zip(*said[item], strict=True)
        assert f"<{', '.join(verdicts)}|{', '.join(f'{one:.15g}' for one in shares)}>" in text


def test_of_a_study_sent_in_part_nobody_is_shown_a_part_of_what_is_asked_in_several_ways(tmp_path: Path) -> None:
    """What would be shown by then waits for the rest: asked at once or in two parts, prompts are the same."""

    reference = stage(
        "best", "generation", 'path = "asked.csv"', f"repeats = 3\n---{use('question')}{models('gpt-4o')}"
    )

    def rig_at(name: str) -> StageRig:
        shown = "\n{#answers.best.text}A: {answers.best.text}{/answers.best.text}\n"
        return rig_of(
            tmp_path / name, reference, answers("gpt-4.1-mini"), judged("judged", 'stage = "answers"', shown, "gpt-4o")
        )

    whole, rig = finished(rig_at("whole")), rig_at("rig")
    rig.plan()
    for limit, n_judged in ((4, 0), (5, 1)):
        rig.submit(limit=limit)
        rig.finish()
        assert len(prompts(rig, "judged")) == n_judged
    rig.submit()
    rig.finish()
    assert prompts(rig, "judged") == prompts(whole, "judged")
    assert len(prompts(rig, "judged")) == 3
    assert rig.billed() == whole.billed()
    assert rig.violations() == []


def test_fields_of_one_answer_show_it_once(tmp_path: Path) -> None:
    fields = "".join(f'[[stages.answer.fields]]\nname = "{name}"\nkind = "label"\n' for name in ("tone", "voice"))
    asked = BY.format("f", "{INPUT} Reply: {ANSWER_FORMAT}")
    seen = BY.format("s", "{INPUT} <{answers.first.text}> Reply: {ANSWER_FORMAT}")
    rig = rig_of(
        tmp_path,
        stage("first", "prompts", 'path = "asked.csv"', f"---{asked}{fields}{models('gpt-4o')}"),
        stage("second", "prompts", 'stage = "first"', f"---{seen}{fields}{models('gpt-4.1-mini')}"),
    )
    finished(rig)
    said = {row["item_first"]: row["text"] for row in rig.ask("select * from results where stage = 'first'")}
    shown = prompts(rig, "second")
    assert len(shown) == 6
    for (item, _), text in shown.items():
        assert text.count(f" <{said[item]}> Reply: ") == 1
    assert rig.ask("select count(distinct request_id) as n from results where stage = 'second'") == [{"n": 3}]


RATED = """\
[[stages.answer.fields]]
name = "tone"
kind = "label"
[[stages.answer.fields]]
name = "depth"
kind = "score"
range = [1, 9]
[[stages.answer.fields]]
name = "advice"
kind = "text"
"""


def rated(name: str, items: str = 'path = "asked.csv"') -> str:
    """Return a stage in which a judge fills fields about each item."""
    return stage(
        name, "prompts", items, f"---{BY.format('f', '{INPUT} Reply: {ANSWER_FORMAT}')}{RATED}{models('gpt-4o')}"
    )


def test_a_field_of_an_earlier_answer_is_shown_by_its_name(tmp_path: Path) -> None:
    """Its value alone: a label, a score or a text; the whole answer stands behind `text`."""
    seen = "{INPUT} <{answers.first.tone}|{answers.first.depth}|{answers.first.advice}>"
    answer = '[stages.answer]\nform = "regex"\npattern = "(?P<label>[a-z]+)"\n'
    second = f"---{answer}{BY.format('s', seen)}{models('gpt-4.1-mini')}"
    rig = finished(rig_of(tmp_path, rated("first"), stage("second", "prompts", 'stage = "first"', second)))
    said: dict[str, dict[str, str]] = {}
    for row in rig.ask("select * from results where stage = 'first'"):
        value = row["explanation"] or row["label"] or f"{row['score']:.15g}"
        said.setdefault(row["item_first"], {})[row["rubric_id"]] = value
    shown = prompts(rig, "second")
    assert len(shown) == 3
    for (item, _), text in shown.items():
        one = said[item]
        assert f"<{one['tone']}|{one['depth']}|{one['advice']}>" in text


def test_a_field_that_is_none_is_refused_with_those_that_are(tmp_path: Path) -> None:
    seen = stage("second", "prompts", 'stage = "first"', f"---{BY.format('s', '{INPUT} {answers.first.tune}')}{RATED}"
                 f"{models('gpt-4o')}")  # fmt: skip
    with pytest.raises(StudyError, match=r"study.toml:\d+: stages\[2\].templates show {answers.first.tune}") as found:
        rig_of(tmp_path, rated("first"), seen).plan()
    assert "{answers.first.tone}, {answers.first.depth}, {answers.first.advice}" in str(found.value.hint)


QUALITY = '[[stages.rubrics]]\nuse = "overall_quality"\n'
TWO = "{TRAIT_NAME} {TRAIT_DESCRIPTION} {SAMPLE_1} {SAMPLE_2} {ANSWER_FIRST} "


def compared(name: str, items: str, text: str, pairs: str = "") -> str:
    """Return a stage of pairs whose template shows `text` besides them."""
    template = BY.format(f"by_{name}", TWO + text)
    return stage(name, "pairwise", items, f"---{pairs}{QUALITY}{template}{models('gpt-4.1-mini')}")


def test_what_was_said_of_each_of_two_items_stands_beside_it(tmp_path: Path) -> None:
    """By the name of its side: a verdict on one item, a field of an answer about it."""
    seen = "<{SAMPLE_1.answers.first.depth}> <{SAMPLE_2.answers.first.depth}>"
    rig = finished(rig_of(tmp_path, rated("first"), compared("second", 'stage = "first"', seen)))
    said = rig.ask("select * from results where stage = 'first' and rubric_id = 'depth'")
    depths = {row["item_first"]: f"{row['score']:.15g}" for row in said}
    found = rig.ask(f"{SAW} where stage = 'second'")
    assert len(found) == 6
    for row in found:
        assert f"<{depths[row['item_first']]}> <{depths[row['item_second']]}>" in row["body"]


SAID = "{answers.first.verdict}"


def ranked(text: str) -> str:
    """Return a stage that ranks answers, its template showing `text` besides them."""
    template = BY.format("r", "{STATEMENT} {INPUT} {OUTPUT_A} {OUTPUT_B} " + text)
    return stage("second", "ranking", 'stage = "answers"', f"---{HONEST}{template}{models('gpt-4o')}")


PARTLY = "[stages.pairs]\nreverse = {}\n"


@pytest.mark.parametrize(
    ("stages", "error", "hint"),
    [
        ([judged("first", 'path = "asked.csv"', "", "gpt-4o"),
          compared("second", 'stage = "first"', "{answers.first.verdict}")],
         r"show {answers.first.verdict}, which first says of each item by itself", "{SAMPLE_1.answers.first.verdict}"),
        ([answers("gpt-4o", "gpt-4o-mini"), judged("first", 'stage = "answers"', "", "gpt-4o"), ranked(SAID)],
         r"which first says of each item by itself", "{OUTPUT_A.answers.first.verdict}"),
        ([compared("first", 'path = "asked.csv"', ""),
          judged("second", 'stage = "first"', "{answers.first.verdict}", "gpt-4o")],
         "which first says of two items at once", "the same items in the same order"),
        ([compared("first", 'path = "asked.csv"', "", PARTLY.format("false")),
          compared("second", 'stage = "first"', "{answers.first.verdict}")],
         "which first says in fewer orders than this stage asks in", "the same items in the same order"),
        ([compared("first", 'path = "asked.csv"', "", '[stages.pairs]\nselect = "adaptive"\n'),
          compared("second", 'stage = "first"', "{answers.first.verdict}", PARTLY.format("false"))],
         "which first says in fewer orders", ""),
        ([answers("gpt-4o"), ranked("")],
         "of which each question has 1, and this stage compares 2", "more models"),
    ],
)  # fmt: skip
def test_what_would_ask_nothing_or_half_in_silence_stops_the_plan(
    tmp_path: Path, stages: list[str], error: str, hint: str
) -> None:
    """With the line of what asks for it."""
    rig = rig_of(tmp_path, *stages)
    with pytest.raises(StudyError, match=error) as found:
        rig.plan()
    assert re.search(r"study\.toml:\d+: ", str(found.value))
    assert hint in str(found.value.hint)
    assert rig.rows("select * from requests", "requests") == []


@pytest.mark.parametrize("reverse", ["0.5", "false"])
def test_pairs_in_the_order_that_was_asked_show_what_was_said(tmp_path: Path, reverse: str) -> None:
    """The same draws choose the same pairs and orders, so that each is asked."""
    asked = f"---{PARTLY.format(reverse)}{QUALITY}{use('plain')}{models('gpt-4o')}"
    first = stage("first", "pairwise", 'path = "asked.csv"', asked)
    second = compared("second", 'stage = "first"', "{answers.first.verdict}", PARTLY.format(reverse))
    rig = finished(rig_of(tmp_path, first, second))
    n_of = {row["stage"]: row["n"] for row in rig.ask("select stage, count(*) as n from results group by stage")}
    assert n_of["first"] == n_of["second"] >= 3


def test_answers_about_other_items_stop_the_plan(tmp_path: Path) -> None:
    """A reference for questions of other names would be waited for in silence."""
    other = answers("gpt-5.4-mini").replace('"answers"', '"reference"').replace("asked.csv", "others.csv")
    rig = rig_of(
        tmp_path, other, answers("gpt-4o"), judged("v", 'stage = "answers"', "{answers.reference.text}", "gpt-4o")
    )
    (rig.study_path.parent / "others.csv").write_text("id,text\nr1,One?\nr2,Two?\n")
    with pytest.raises(StudyError, match=r"stage v shows {answers.reference.text}, and reference is asked about none"):
        rig.plan()
    (rig.study_path.parent / "others.csv").write_text("id,text\nq1,One?\nr2,Two?\n")
    rig.plan()


@pytest.mark.parametrize("is_optional", [False, True])
def test_an_item_waits_for_an_answer_that_failed_unless_its_prompt_says_what_to_do(
    tmp_path: Path, is_optional: bool
) -> None:
    """Once the answer has come by `retry`, what waited is asked, and nothing that was asked is asked again."""
    text = "Another says {answers.first.verdict}."
    text = f"{{#answers.first.verdict}}\n{text}\n{{/answers.first.verdict}}\n{{^answers.first.verdict}}\nAlone.\n" \
           "{/answers.first.verdict}" if is_optional else text  # fmt: skip
    rig = rig_of(
        tmp_path,
        answers("gpt-4o"),
        judged("first", 'stage = "answers"', "", "gpt-4.1-mini"),
        judged("second", 'stage = "answers"', text, "gpt-5.4-mini"),
        faults=("lines@2:error_rows=1",),
    )
    finished(rig)
    assert rig.ask("select count(*) as n from results where stage = 'first' and outcome = 'error'") == [{"n": 1}]
    shown = prompts(rig, "second")
    assert len(shown) == (3 if is_optional else 2)
    assert sum("Alone." in one for one in shown.values()) == (1 if is_optional else 0)
    rig.retry()
    rig.finish()
    assert len(prompts(rig, "second")) == 3
    assert {key: text for key, text in prompts(rig, "second").items() if key in shown} == shown
    assert rig.violations() == []


@pytest.mark.parametrize(
    ("text", "items", "error", "hint"),
    [
        ("{answers.frist.text}", 'stage = "answers"', r"\{answers\.frist\.text\}, which no earlier stage answers",
         "{answers.answers.text}, {answers.first.text}, {answers.first.verdict}"),
        ("{answers.answers.verdict}", 'stage = "answers"', r"\{answers\.answers\.verdict\}", "{answers.answers.text}"),
        ("{answers.second.text}", 'stage = "answers"', r"\{answers\.second\.text\}", "{answers.first.explanation}"),
        ("{answers.first}", 'stage = "answers"', r"\{answers\.first\}", "{answers.first.text}"),
        ("{answers.first.text}", 'path = "asked.csv"', "before first has answered", 'stage = "first"'),
        ("{#answers.first.text}never closed", 'stage = "answers"', "is never closed", "{/item.x}"),
        ("{awnsers.first.text}", 'stage = "answers"', "is no placeholder here", "{answers.STAGE.COLUMN}"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_stops_the_plan_with_what_can(
    tmp_path: Path, text: str, items: str, error: str, hint: str
) -> None:
    rig = rig_of(
        tmp_path,
        answers("gpt-4o"),
        judged("first", 'stage = "answers"', "", "gpt-4.1-mini"),
        judged("second", items, text, "gpt-5.4-mini"),
    )
    with pytest.raises(StudyError, match=error) as found:
        rig.plan()
    assert hint in str(found.value.hint)
    assert rig.rows("select * from requests", "requests") == []


def test_pairs_alone_and_conversations_have_no_answers_to_show(tmp_path: Path) -> None:
    """Nor are conversations and made questions shown; that is said, not sent as text."""
    rig = rig_of(
        tmp_path,
        stage("talk", "conversation", 'path = "asked.csv"', f"turns = 1\n---{models('gpt-4o')}"),
        judged("verdicts", 'stage = "talk"', "{answers.talk.text}", "gpt-4.1-mini", rubrics=""),
    )
    with pytest.raises(StudyError, match="conversations and made questions cannot be shown"):
        rig.plan()
    plain = (
        'study = "demo"\nrubrics = ["overall_quality"]\nitems = { path = "asked.csv" }\n'
        '[[templates]]\nid = "t"\ntext = "{TRAIT_NAME} {TRAIT_DESCRIPTION} {SAMPLE_1} {SAMPLE_2} {answers.x.text}"\n'
        '[[models]]\nprovider = "openai"\nmodel = "gpt-4o"\n'
    )
    rig.write(plain)
    with pytest.raises(StudyError, match="no earlier stage answers") as found:
        rig.plan()
    assert found.value.hint == "there are: none"
    rig.write(plain.replace('"t"\n', '"t"\nliteral = ["answers.x.text"]\n'))
    rig.plan()
    assert all("{answers.x.text}" in body for (body,) in rig.rows("select body from requests", "requests"))


TALK = stage("talk", "conversation", 'path = "asked.csv"', f"turns = 1\n---{models('gpt-4o')}")


@pytest.mark.parametrize("items", ['stage = "talk"', 'stage = "other"'])
def test_of_a_conversation_it_is_said_what_can_be_shown_instead(tmp_path: Path, items: str) -> None:
    """Each of its answers is a row of its own, whichever rows the stage asks about."""
    other = answers("gpt-4o").replace('"answers"', '"other"')
    judge = judged("verdicts", items, "{answers.talk.text}", "gpt-4.1-mini", rubrics="")
    with pytest.raises(StudyError, match=r"study.toml:\d+: stages\[3\].templates show {answers.talk.text}") as found:
        rig_of(tmp_path, TALK, other, judge).plan()
    for word in ('`stage = "talk"`', "{OUTPUT}", "{item.conversation}", "{item.first_output}"):
        assert word in str(found.value.hint)


def test_what_is_said_instead_shows_each_answer_and_the_talk_that_led_to_it(tmp_path: Path) -> None:
    """From the question to the answer itself, of its own conversation alone."""
    seen = "<{item.conversation}> first <{item.first_output}>"
    rig = finished(rig_of(tmp_path, TALK, judged("verdicts", 'stage = "talk"', seen, "gpt-4.1-mini", rubrics="")))
    said = {(row["unit_id"], row["turn_no"]): row["text"]
            for row in rig.ask("select * from results where stage = 'talk'")}  # fmt: skip
    found = rig.ask(f"{SAW} where stage = 'verdicts'")
    assert len(found) == len(said) == 3 * 2
    for row in found:
        text = json.loads(row["body"])["messages"][0]["content"]
        _, talk, first = text.split("<")
        own = [said[row["unit_id"], turn_no] for turn_no in range(row["turn_no"] + 1)]
        assert first.startswith(f"{own[0]}>")
        others = [answer for (unit_id, _), answer in said.items() if unit_id != row["unit_id"]]
        assert not [answer for answer in others if answer in talk]
        assert talk.partition(">")[0].rpartition("assistant]\n")[2].startswith(own[-1])
        assert own[0] in talk


def test_a_lake_keeps_what_a_stage_shows(tmp_path: Path) -> None:
    """Later rounds are opened from the lake alone, by the same record that the file made."""
    rig = rig_of(
        tmp_path,
        answers("gpt-4o"),
        judged("first", 'stage = "answers"', "", "gpt-4.1-mini"),
        judged("second", 'stage = "answers"', SECOND, "gpt-5.4-mini"),
    )
    loaded = study_file.load(rig.study_path)
    second: StageSpec = loaded.stage("second")
    assert second.answers == {
        "answers.answers.text": ("answers", "text"),
        "answers.first.explanation": ("first", "explanation"),
        "answers.first.verdict": ("first", "verdict"),
    }
    assert second.rows.waits_for == ("answers", "first")
    rig.plan()
    rig.study_path.unlink()
    rig.submit()
    rig.finish()
    assert len(prompts(rig, "second")) == 3


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("{INPUT}", True), ("{INPUT} {OUTPUT}", False), ("{INPUT} {answers.answers.text}", False)],
)
def test_a_judge_of_answers_that_sees_none_is_told_at_plan(tmp_path: Path, text: str, is_told: bool) -> None:
    """{INPUT} is what was asked, in `prompts` too: nine answers came to three requests that show none of them."""
    answer = '[stages.answer]\nform = "regex"\npattern = "(?P<label>[a-z]+)"\n'
    asked = f"---{answer}{BY.format('kind', text)}{models('gpt-5.4-mini')}"
    rig = rig_of(tmp_path, answers("gpt-4o"), stage("kinds", "prompts", 'stage = "answers"', asked))
    notes = [note for note in rig.planned().notes if "shows no answer of stage answers" in note]
    assert (len(notes) == 1) == is_told
