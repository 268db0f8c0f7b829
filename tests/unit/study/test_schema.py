"""The JSON Schema of study files: valid itself, and of one mind with the reader about everything it can say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from batchpond.cli.init import COMMENTED, EXAMPLES, example
from batchpond.study.file import schema

BEFORE: dict[str, dict[str, Any]] = orjson.loads((Path(__file__).parent / "planned_before.json").read_bytes())
SCHEMA = jsonschema.Draft202012Validator(schema())
WRONG = {
    "an unknown key": ('study = "', 'studdy = "'),
    "an unknown key of a table": ('path = "samples.csv"', 'pth = "samples.csv"'),
    "a number out of its bounds": ("seed = 1 ", "seed = -1 "),
    "a word nobody knows": ('order = "random"', 'order = "randm"'),
    "a number for a text": ('model = "gpt-5.4-mini"', "model = 3"),
    "a name of another form": ('study = "writing-quality"', 'study = "Writing"'),
    "a key that only stages have": ("[grid]", "turns = 2\n[grid]"),
    "the same level twice": ('thinking = ["none", "low"]', 'thinking = ["low", "low"]'),
    "nobody to ask": ("[[models]]", "[[modles]]"),
}


def test_it_is_a_json_schema_whose_keys_say_what_they_mean() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$defs"]["ModelSpec"]["properties"]["mode"]["description"]
    assert "null" not in orjson.dumps(schema()).decode()


@pytest.mark.parametrize(("name", "is_commented"), [(n, False) for n in EXAMPLES] + [(n, True) for n in COMMENTED])
def test_it_accepts_the_examples(name: str, is_commented: bool) -> None:
    SCHEMA.validate(tomllib.loads(example(name, is_commented=is_commented)))


@pytest.mark.parametrize("name", BEFORE)
def test_it_accepts_what_the_reader_does(name: str) -> None:
    SCHEMA.validate(tomllib.loads(BEFORE[name]["files"]["study.toml"]))


@pytest.mark.parametrize("name", WRONG)
def test_it_refuses_what_the_reader_does(name: str) -> None:
    old, new = WRONG[name]
    text = example(is_commented=True)
    assert old in text
    assert not SCHEMA.is_valid(tomllib.loads(text.replace(old, new)))
