"""README and guides, read: what they name is there, and every command's help says which guide to read."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from batchpond.api import Lake
from batchpond.cli.frame import COMMANDS, GUIDE_OF, GUIDES, Invocation, root
from batchpond.errors import ExitCode, UsageError
from batchpond.study.file import schema
from batchpond.views import database
from tests.rigs.pages import GUIDES as FOLDER
from tests.rigs.pages import PAGES, ROOT, Block, blocks, code_spans, prose

LANGUAGES = {"md", "sh", "bash", "python", "sql", "toml", "csv", "jsonl", "json", "text", "mermaid", "yaml", "ini"}
EXCUSED_MAX = 15
README_LINES_MAX = 110
PICTURE_BYTES_MAX = 200_000
SENTENCE_CHARS_MAX = 80 - len("from-pairwisellm  ")  # the list is whole in a narrow terminal
DEMO = "python3 -m venv .venv && .venv/bin/pip install --quiet '.[report]' && .venv/bin/batchpond demo"
TESTS = (
    "python3 -m venv .venv && .venv/bin/pip install --quiet --editable '.[dev]' "
    "&& .venv/bin/python -m pytest -q -n 3 --dist loadfile"
)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
each_guide = pytest.mark.parametrize("page", [page for page in PAGES if page.parent == FOLDER], ids=lambda p: p.stem)


def call(*arguments: str) -> str:
    """Run a command in this process and return its stdout."""
    return CliRunner().invoke(root, arguments, obj=Invocation(), standalone_mode=False, catch_exceptions=False).stdout


def test_every_page_is_a_guide_and_every_guide_a_page() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(GUIDES)
    assert all(path.suffix == ".md" for path in FOLDER.iterdir())


@each_guide
def test_a_guide_begins_with_a_sentence_and_is_printed_as_it_is(page: Path) -> None:
    title, empty, sentence, *_ = page.read_text("utf-8").splitlines()
    assert title.startswith("# ")
    assert empty == ""
    assert sentence.endswith(".")
    assert len(sentence) <= SENTENCE_CHARS_MAX
    assert call("guide", page.stem) == page.read_text("utf-8")


def test_the_list_has_a_line_for_each_in_reading_order() -> None:
    rows = json.loads(call("guide", "--json"))
    assert [row["guide"] for row in rows] == GUIDES
    assert all(row["about"].endswith(".") for row in rows)


def test_an_unknown_guide_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        call("guide", "tutorail")
    assert raised.value.exit_code == ExitCode.USAGE
    assert raised.value.hint == "did you mean 'tutorial'?"


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command, and those inside a group, by its words."""
    context = click.Context(root)
    for name in COMMANDS:
        found = root.get_command(context, name)
        assert found is not None
        yield (name,), found
        if isinstance(found, click.Group):
            for inner in found.list_commands(context):
                child = found.get_command(context, inner)
                assert child is not None
                yield (name, inner), child


BY_WORDS = dict(commands())
OPTIONS = {
    words: {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    for words, found in BY_WORDS.items()
}
OF_ALL = {"-h", "--help", "--version"} | {name for one in root.params for name in one.opts}
WITH_VALUES = {name for one in root.params if not getattr(one, "is_flag", True) for name in one.opts}


def test_every_command_has_a_guide_and_no_guide_a_command_that_is_not_there() -> None:
    """Of what `import` has inside, each that has a page of its own."""
    assert set(GUIDE_OF.values()) <= set(GUIDES)
    assert set(COMMANDS) <= set(GUIDE_OF) <= {word for words in BY_WORDS for word in words}


@pytest.mark.parametrize("words", BY_WORDS, ids=" ".join)
def test_the_help_of_a_command_ends_with_its_guide(words: tuple[str, ...]) -> None:
    """In the way in which one reads it: `batchpond guide NAME`."""
    guide = GUIDE_OF.get(words[-1])
    shown = call(*words, "--help").rstrip()
    assert ("Guide: batchpond guide" in shown) is (guide is not None)
    assert guide is None or shown.endswith(f"Guide: batchpond guide {guide}")


@each_page
def test_blocks_are_run_or_say_why_not(page: Path) -> None:
    """A language that is known, and for what is not run a reason of some words."""
    for block in blocks(page):
        assert block.language in LANGUAGES, (page.name, block.line_number)
        if block.reason is not None:
            assert len(block.reason.split()) >= 3, (page.name, block.line_number)
        elif block.language in {"text", "bash", "csv", "jsonl", "json", "yaml", "ini"}:
            assert block.fate, f"{page.name}:{block.line_number} is neither a file nor output nor excused"


def test_few_blocks_are_excused() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    assert sum(block.reason is not None for block in every) <= EXCUSED_MAX
    assert sum(block.is_run for block in every) >= 5 * EXCUSED_MAX / 2


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `batchpond` of each command in shell text."""
    without_comments = re.sub(r"(^|\s)#.*$", r"\1", text.replace("\\\n", " "), flags=re.MULTILINE)
    lexer = shlex.shlex(without_comments, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    for is_end, words in groupby(lexer, key=lambda word: not set(word) - set("();<>|&\n")):
        yield from () if is_end else after_program(list(words))


def after_program(words: list[str]) -> Iterator[list[str]]:
    """Yield what follows each `batchpond` in the words of one command: one may run another after `--`."""
    places = [place for place, word in enumerate(words) if re.fullmatch(r"(.*/)?batchpond", word)]
    for begin, end in pairwise([*places, len(words)]):
        found = words[begin + 1 : end]
        yield found[: found.index("--")] if "--" in found else found


def named(page: Path) -> Iterator[list[str]]:
    """Yield every command that a page names, in a block or between backticks, as words after `batchpond`."""
    for block in blocks(page):
        if block.language in {"sh", "yaml", "ini", "text"} and block.fate != "output":
            yield from simple_commands(block.text)
    for span in code_spans(page):
        if span.startswith("batchpond "):
            yield from simple_commands(span)
        elif re.match(r"[a-z]+ -", span) and span.split()[0] in COMMANDS:
            yield shlex.split(span)


def check(words: list[str]) -> None:
    """Fail for a command, or an option of it, that does not exist."""
    while words and words[0].startswith("-"):
        assert words[0] in OF_ALL, words
        words = words[2:] if words[0] in WITH_VALUES else words[1:]
    if not words or words[0].isupper():
        return
    depth = 2 if tuple(words[:2]) in BY_WORDS else 1
    command = tuple(words[:depth])
    assert command in BY_WORDS, words
    if command == ("guide",) and len(words) > 1:
        assert words[1] in GUIDES or words[1].isupper(), words
    for word in words[depth:]:
        if re.fullmatch(r"-[a-z]|--[a-z].*", word):
            assert word.partition("=")[0] in OPTIONS[command] | OF_ALL, (words, word)


@each_page
def test_every_command_and_option_that_is_named_exists(page: Path) -> None:
    for words in named(page):
        check(words)
    known = set(chain.from_iterable(OPTIONS.values())) | OF_ALL
    for span in code_spans(page):
        if span.startswith("--"):
            assert {word for word in span.split() if word.startswith("--")} <= known, span


@each_page
def test_exit_codes_and_views_and_methods_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    codes = {int(code) for code in re.findall(r"\bexit(?: code)?,? (\d+)", text, re.IGNORECASE)}
    assert codes <= {int(code) for code in ExitCode}
    views = {view.name for view in database.views()}
    for span in code_spans(page):
        if re.fullmatch(r"(metric|report|pair)_\w+", span) and span not in {"pair_uid", "pair_id"}:
            assert span in views, span
        for method in re.findall(r"^(?:batchpond\.)?[Ll]ake\.(\w+)", span):
            assert hasattr(Lake, method) or method == "duckdb", span


def slugs(page: Path) -> set[str]:
    """Return what links may point to on a page."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a page beside it: a guide is read where the checkout is not."""
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.is_file(), target
        assert page.parent != FOLDER or found.parent == FOLDER, target
        assert not anchor or anchor in slugs(found), target
    assert "http://" not in prose(page).replace("http://127.0.0.1", "")
    assert "https://" not in prose(page)


def lenient(node: Any) -> Any:
    """Return a schema that asks for nothing and still refuses what it does not know."""
    if isinstance(node, dict):
        return {key: lenient(value) for key, value in node.items() if key != "required"}
    return [lenient(value) for value in node] if isinstance(node, list) else node


PARTS = [
    name for name in schema()["$defs"] if name.endswith("File") and "study" in schema()["$defs"][name]["properties"]
]


def is_part(fragment: dict[str, Any]) -> bool:
    """Return whether a fragment could stand in a study file, whichever of its kinds it is."""
    lax = lenient(schema()["$defs"])
    return any(jsonschema.Draft202012Validator({"$defs": lax, **lax[name]}).is_valid(fragment) for name in PARTS)


@each_page
def test_parts_of_studies_have_no_unknown_key(page: Path) -> None:
    for block in blocks(page):
        if block.language == "toml" and not block.fate:
            assert is_part(tomllib.loads(block.text)), f"{page.name}:{block.line_number}"


def test_a_part_with_an_unknown_key_or_a_wrong_value_is_found() -> None:
    assert is_part({"pairs": {"select": "adaptive", "rounds": 6}})
    assert not is_part({"pairs": {"roundz": 6}})
    assert not is_part({"models": [{"provider": "openai", "model": "m", "mode": "never"}]})


def test_yaml_is_yaml() -> None:
    found: list[Block] = [block for page in PAGES for block in blocks(page) if block.language == "yaml"]
    assert all(isinstance(yaml.safe_load(block.text), dict) for block in found)


def test_the_readme_is_one_screen_with_a_picture_and_both_commands() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= README_LINES_MAX
    assert {DEMO, TESTS} <= set(readme.splitlines())
    for picture in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme):
        assert (ROOT / picture).stat().st_size <= PICTURE_BYTES_MAX
    promises = readme.split("## What it promises")[1].split("\n## ")[0]
    assert re.findall(r"^(\d)\. ", promises, re.MULTILINE) == list("123456789")
