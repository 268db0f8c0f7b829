"""What could be read from a cache: told where it stands after what varies, never moved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchpond.lake.store import Store
from batchpond.lake.tables import connect
from batchpond.plan.verb import plan_study
from batchpond.study.file import load

LONG = "Rate as experts do. " * 300  # 6,000 bytes: 1,500 estimated tokens
SHORT = "Rate as experts do. " * 150
MODEL = '[[models]]\nprovider = "{}"\nmodel = "{}"\nmax_output_tokens = 1000\n'
OPENAI = MODEL.format("openai", "gpt-5.4-mini")
GEMINI = MODEL.format("gemini", "gemini-2.5-flash")


def notes(folder: Path, template: str, models: str = OPENAI) -> list[str]:
    """Return what `plan` says of caches; the prompts are the template's text in the order in which it is written."""
    (folder / "items.csv").write_text("id,text,hint\na,One.,kind\n")
    (folder / "t.txt").write_text(template)
    head = 'study = "s"\ntask = "prompts"\n[items]\npath = "items.csv"\n'
    answer = '[answer]\nform = "regex"\npattern = "(?P<score>[1-9])"\n'
    (folder / "study.toml").write_text(f'{head}[[templates]]\nid = "t"\nfile = "t.txt"\n{answer}{models}')
    store = Store.init(folder / "lake")
    report = plan_study(store, load(folder / "study.toml"))
    with connect(store, ["requests"]) as connection:
        ((body,), *_) = connection.execute("select body from requests order by size_bytes").fetchall()
    shown = template.replace("{INPUT}", "One.").replace("{item.hint}", "kind")
    pieces = [piece.strip() for piece in re.split(r"\[\[\w+\]\]|\{[#/]item\.hint\}", shown) if piece.strip()]
    places = [body.replace("\\n", "\n").find(piece) for piece in pieces]
    assert min(places) >= 0
    assert places == sorted(places) or models != OPENAI
    return [note for note in report.notes if "cache" in note]


def test_a_long_text_after_what_varies_is_told_with_its_tokens(tmp_path: Path) -> None:
    assert notes(tmp_path, "Question: {INPUT}\n" + LONG) == [
        "template t: {INPUT} varies and stands before 1,500 of about 1,502 tokens that are the same in every request:"
        " placed first they could be read from a cache, at a lower price, from 1,024 on"
    ]


@pytest.mark.parametrize(
    ("template", "models", "is_told"),
    [
        (LONG + "{INPUT}", OPENAI, False),
        (LONG + "{INPUT} " + LONG, OPENAI, True),
        (LONG + "{INPUT} " + SHORT, OPENAI, False),
        (SHORT + "{INPUT} " + SHORT, OPENAI, True),
        ("{INPUT} " + SHORT, OPENAI, False),
        ("[[system]]\n" + LONG + "\n[[user]]\n{INPUT}", OPENAI, False),
        ("[[system]]\nBe {item.hint}.\n[[user]]\n" + LONG + "{INPUT}", OPENAI, True),
        ("{#item.hint}Think of {item.hint}. {/item.hint}" + LONG + "{INPUT}", OPENAI, True),
        ("{INPUT} " + LONG, GEMINI, False),
        ("{INPUT} " + LONG, GEMINI + OPENAI, True),
        ("{INPUT} " + LONG + LONG, GEMINI, True),
        ("{INPUT} " + LONG + LONG, MODEL.format("anthropic", "claude-haiku-4-5"), False),
    ],
)
def test_it_is_told_where_moving_it_would_make_enough_of_it_the_beginning(
    tmp_path: Path, template: str, models: str, is_told: bool
) -> None:
    """By the least that a provider of the study caches; what stands first already, or is too short, is not told, nor
    anything of a provider that caches nothing by itself."""
    assert len(notes(tmp_path, template, models)) == is_told
