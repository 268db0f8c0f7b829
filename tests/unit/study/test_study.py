"""study.toml: what is written is read, and what is wrong is named with file, line, key and a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.cli.init import example
from batchpond.errors import ExitCode, StudyError
from batchpond.model import ErrorClass
from batchpond.study.file import load, parse_study
from batchpond.study.spec import ItemsFrom, ItemsSpec, Order, PairsSpec, ShardsSpec, Study, Unsupported
from batchpond.study.typed import find_line

MINIMAL = """\
study = "s"
rubrics = ["overall_quality"]
templates = ["plain", "concise"]
[items]
path = "samples.csv"
[[models]]
provider = "openai"
model = "gpt-5.4-mini"
"""


def parsed(text: str, folder: Path = Path()) -> Study:
    """Parse a study text."""
    return parse_study(text.encode(), base_path=folder)


def test_a_minimal_study_has_sensible_defaults() -> None:
    """Five lines are a study: all pairs, both directions, random order, one repeat."""
    study = parsed(MINIMAL)
    (stage,) = study.stages
    assert stage.pairs == PairsSpec(share=None, count=None, order=Order.RANDOM, reverse=1.0, repeats=1)
    assert stage.rows.items == ItemsSpec(ItemsFrom.CSV, "samples.csv", "id", "text")
    assert stage.models[0].thinking == ("default",)
    assert stage.models[0].max_output_tokens is None
    assert (study.seed, study.unsupported, study.shards) == (1, Unsupported.REFUSE, ShardsSpec())
    assert [template.template_id for template in study.templates] == ["plain", "concise"]


def test_a_pairwise_study_may_say_that_it_is_one() -> None:
    """`task = "pairwise"` is what a study without a task is."""
    assert parsed('task = "pairwise"\n' + MINIMAL) == parsed(MINIMAL)


def test_everything_that_can_be_written_is_read(tmp_path: Path) -> None:
    """Each section's keys end in their place."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "mine.txt").write_text("{TRAIT_NAME}{TRAIT_DESCRIPTION}{SAMPLE_1}{SAMPLE_2}")
    study = parsed(
        """\
study = "full_1"
seed = 0
[items]
sql = "select 1"
id = "name"
text = "body"
[pairs]
count = 7
order = "alternate"
reverse = false
repeats = 3
[[rubrics]]
id = "voice"
name = "Voice"
description = "own sound"
[[templates]]
file = "prompts/mine.txt"
[[templates]]
id = "short"
text = "{TRAIT_NAME}{TRAIT_DESCRIPTION}{SAMPLE_1}{SAMPLE_2}"
[answer]
prefix = "Winner: "
first = "A"
second = "B"
suffix = ""
[[models]]
provider = "openai"
model = "m"
thinking = ["none", "low"]
include_thoughts = true
max_output_tokens = 100
temperature = 0
endpoint = "responses"
[models.parameters]
seed = 7
text = { verbosity = "low" }
[grid]
unsupported = "drop"
[shards]
segments = 3
per_cell = true
[retry]
max_attempts = 2
classes = ["transient"]
[budget]
max_cost_usd = 2.5
""",
        tmp_path,
    )
    (stage,) = study.stages
    assert stage.rows.items == ItemsSpec(ItemsFrom.SQL, "select 1", "name", "body")
    assert stage.pairs == PairsSpec(None, 7, Order.ALTERNATE, 0.0, 3)
    assert [(t.template_id, t.file) for t in study.templates] == [("mine", "prompts/mine.txt"), ("short", None)]
    assert stage.rule.values()["ANSWER_FIRST"] == "Winner: A"
    assert stage.models[0].parameters == {"seed": 7, "text": {"verbosity": "low"}}
    assert (stage.models[0].temperature, stage.models[0].endpoint) == (0.0, "responses")
    assert study.shards == ShardsSpec(None, 3, True)
    assert study.retry.classes == (ErrorClass.TRANSIENT,)
    assert (study.budget.max_cost_usd, study.unsupported, study.seed) == (2.5, Unsupported.DROP, 0)


def test_the_example_is_a_study() -> None:
    """What `init` writes can be planned as it is, and each commented line can be switched on."""
    text = example(is_commented=True)
    assert parsed(text).name == "writing-quality"
    for key in ("share", "temperature", "max_cost_usd", "parameters"):
        text = text.replace(f"# {key} =", f"{key} =")
    study = parsed(text)
    (stage,) = study.stages
    assert (stage.pairs.share, stage.models[0].parameters, study.budget.max_cost_usd) == (0.25, {"seed": 7}, 20.0)


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('study = "s"', 'studdy = "s"', "study.toml:1: studdy is not a known key", "did you mean `study`?"),
        ("path =", "pth =", "study.toml:5: items.pth is not a known key", "did you mean `path`?"),
        ("model =", "modle =", "study.toml:8: models[1].modle is not a known key", "did you mean `mode` or `model`?"),
        ('"gpt-5.4-mini"', "3", "study.toml:8: models[1].model must be a string, not a number", None),
        ('"gpt-5.4-mini"', '"a b"', "study.toml:8: models[1].model is 'a b', which does not have the form", None),
        ("[items]", "[item]", "study.toml:4: item is not a known key", "did you mean `items`?"),
        ('path = "samples.csv"', "", "study.toml:4: items has none; it needs exactly one of path, folder, sql", None),
        ("samples.csv", "samples.xls", "study.toml:5: items.path ends with '.xls'", "folder"),
        ('["plain", "concise"]', '["plain", "plain"]', "study.toml:3: templates has more than one plain", None),
        (
            '["plain", "concise"]',
            '["plan"]',
            "study.toml:3: templates[1].use is 'plan', not one of",
            "did you mean `plain`",
        ),
        ('["plain", "concise"]', "[]", "study.toml:3: templates has 0 entries", None),
        ('study = "s"', 'study = "S"', "study.toml:1: study is 'S', which does not have the form", None),
        ('study = "s"', "study = 2026-01-01", "study.toml:1: study must be a string, not a date or time", None),
        ('study = "s"', 'study = "s', "study.toml: not valid TOML", "quotes"),
        ('study = "s"', 'study = "C:\\Users\\me"', "study.toml: not valid TOML", "a backslash begins an escape"),
        ("[items]", "[pairs]\nshare = 1.5\n[items]", "study.toml:5: pairs.share is 1.5, not between 0 and 1", None),
        ("[items]", "[pairs]\nshare = nan\n[items]", "study.toml:5: pairs.share is nan", None),
        ("[items]", "[pairs]\nshare = 0\n[items]", "study.toml:5: pairs.share is 0", None),
        (
            "[items]",
            "[pairs]\nshare = 1\ncount = 1\n[items]",
            "study.toml:6: pairs.count cannot be given together",
            None,
        ),
        (
            "[items]",
            "[pairs]\nrepeats = true\n[items]",
            "pairs.repeats must be a whole number, not true or false",
            None,
        ),
        (
            "[items]",
            '[pairs]\norder = "randm"\n[items]',
            "pairs.order is 'randm', not one of",
            "did you mean `random`?",
        ),
        ("[items]", "[shards]\nsegments = 0\n[items]", "shards.segments is 0, not between 1 and", None),
        (
            "[items]",
            '[retry]\nclasses = ["transint"]\n[items]',
            "retry.classes[1] is 'transint', not one of",
            "did you mean `transient`?",
        ),
        (
            "[items]",
            '[answer]\nfirst = "A"\nsecond = "a"\n[items]',
            "study.toml:4: answer: ",
            "none begins another",
        ),
        ("[items]", "pairs = 3\n[items]", "study.toml:4: pairs must be a table, not a number", None),
        ("provider =", "parameters = {a = {b = inf}}\nprovider =", "models[1].parameters.a.b is inf", None),
        ("provider =", "parameters = {a = [2026-01-01]}\nprovider =", "models[1].parameters.a.1 is a date", None),
        (
            "provider =",
            f"parameters = {{a = {2**64}}}\nprovider =",
            "models[1].parameters.a does not fit 64 bits",
            None,
        ),
        ("provider =", 'thinking = ["low", "low"]\nprovider =', "models[1].thinking names something twice", None),
        ("provider =", 'mode = "later"\nprovider =', "models[1].mode is 'later', not one of batch, live, files", None),
        (
            '"plain", "concise"',
            '{text = "x", id = "x"}',
            "templates[1].text: the template lacks {TRAIT_NAME}",
            "templates",
        ),
        ('"plain", "concise"', '{use = "plain", file = "x"}', "has use and file; it needs exactly one", None),
        ('["overall_quality"]', '[{id = "x", name = "X"}]', "rubrics[1].description is missing", None),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str, hint: str | None) -> None:
    """File, line and dotted key, and where there is one, the next step."""
    assert old in MINIMAL
    with pytest.raises(StudyError) as caught:
        parsed(MINIMAL.replace(old, new))
    assert message in caught.value.message
    assert caught.value.exit_code is ExitCode.USAGE
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_all_keys_nobody_knows_are_named_at_once() -> None:
    """Each with its line, before any value is looked at; the hints stand together."""
    text = MINIMAL.replace('study = "s"', 'studdy = "s"').replace("path =", "pth =").replace('"gpt-5.4-mini"', "3")
    with pytest.raises(StudyError) as caught:
        parsed(text)
    assert caught.value.message.split("\n") == [
        "study.toml:1: studdy is not a known key",
        "study.toml:5: items.pth is not a known key",
    ]
    assert caught.value.hint == "did you mean `study`? did you mean `path`?"


def test_the_same_model_and_thinking_twice_is_refused() -> None:
    """Two entries that differ only in parameters could not be told apart in any result."""
    second = '[[models]]\nprovider = "openai"\nmodel = "gpt-5.4-mini"\ntemperature = 1\n'
    with pytest.raises(StudyError, match=r"more than one openai/gpt-5\.4-mini with thinking 'default'"):
        parsed(MINIMAL + second)
    assert len(parsed(MINIMAL + second + 'thinking = "low"\n').stages[0].models) == 2


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A missing file and bad bytes are StudyErrors with the path."""
    with pytest.raises(StudyError, match=r"nowhere\.toml: No such file"):
        load(tmp_path / "nowhere.toml")
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b'study = "s"\n# \xff\n')
    with pytest.raises(StudyError, match=r"bad\.toml:2: not valid UTF-8"):
        load(bad)


def test_paths_start_at_the_study_file(tmp_path: Path) -> None:
    """The folder of the file is kept, and a byte order mark is ignored."""
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load(path).base_path == tmp_path


@given(st.binary(max_size=200))
def test_any_bytes_give_a_study_or_a_study_error(data: bytes) -> None:
    """Nothing but StudyError comes out of a broken file."""
    with pytest.raises(StudyError):
        parse_study(data)


@given(st.text(max_size=100), st.integers(0, 8))
def test_any_line_inserted_gives_a_study_or_a_study_error(line: str, place: int) -> None:
    """A broken line anywhere is never another exception."""
    lines = MINIMAL.split("\n")
    found: object = None
    try:
        found = parse_study("\n".join([*lines[:place], line, *lines[place:]]).encode("utf-8", "replace"))
    except StudyError as error:
        found = error
    assert isinstance(found, Study) or (isinstance(found, StudyError) and found.message)


def test_lines_are_found_in_the_right_list_element() -> None:
    """The second [[models]] is not the first, and text in multi-line strings is not a key."""
    text = '[[models]]\nmodel = "a"\n[[models]]\nnote = """\nmodel = "x"\n"""\nmodel = "b"\n'
    text += "[models.parameters]\nseed = 1\n"
    assert find_line(text, ("models", 0, "model")) == 2
    assert find_line(text, ("models", 1, "model")) == 7
    assert find_line(text, ("models", 1, "parameters", "seed")) == 9
    assert find_line(text, ("models", 1, "absent")) == 3
    assert find_line(text, ("nothing",)) is None
    nested = "[[stages]]\n[[stages.models]]\na = 1\n[[stages]]\n[[stages.models]]\n[[stages.models]]\na = 2\n"
    assert find_line(nested, ("stages", 1, "models", 1, "a")) == 7
    assert find_line(nested, ("stages", 1, "models", 0, "b")) == 5
    assert find_line('a = 1\ntemplates = ["plan"]\n', ("templates", 0, "use")) == 2
