"""Studies that commit cc06c86 read and kept in lakes: the same text is the same study still, and so is what it kept.

`planned_before.json` has each study's files and what that commit wrote as `studies.config`, which decides its version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from batchpond.errors import LakeError
from batchpond.plan.cells import config_json
from batchpond.study.file import load
from batchpond.study.spec import Study, from_config, to_config, to_json

BEFORE: dict[str, dict[str, Any]] = orjson.loads((Path(__file__).parent / "planned_before.json").read_bytes())
STAGED = [name for name, study in BEFORE.items() if "stages" in orjson.loads(study["config"])]


def loaded(folder: Path, name: str) -> Study:
    """Write a study's files and load it."""
    for file, text in BEFORE[name]["files"].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return load(folder / "study.toml")


@pytest.mark.parametrize("name", BEFORE)
def test_a_text_is_the_study_that_it_was(tmp_path: Path, name: str) -> None:
    """Also byte for byte, but for what a lake keeps besides since: how long answers are expected to be."""
    study = loaded(tmp_path, name)
    written = to_json(study) if study.has_rounds else _without_lengths(config_json(study))
    assert written == BEFORE[name]["config"]


def _without_lengths(config: str) -> str:
    kept = orjson.loads(config)
    assert kept.pop("lengths")
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()


@pytest.mark.parametrize("name", STAGED)
def test_what_a_lake_kept_is_the_study_that_its_text_says(tmp_path: Path, name: str) -> None:
    kept = from_config(orjson.loads(BEFORE[name]["config"]))
    study = loaded(tmp_path, name)
    assert to_json(kept) == BEFORE[name]["config"]
    assert kept.stages == study.stages
    assert (kept.name, kept.seed, kept.unsupported) == (study.name, study.seed, study.unsupported)
    assert (kept.shards, kept.retry, kept.budget) == (study.shards, study.retry, study.budget)


SETTINGS = (
    '[claims]\nprimary = "position"', '[claims]\nprimary = "position"\nsecondary = []\neffect = 0.1',
    "[retry]\nmax_attempts = 2", '[retry]\nclasses = ["expired"]', "[budget]\nmax_cost_usd = 3.5",
    '[grid]\nunsupported = "drop"',
)  # fmt: skip


@pytest.mark.parametrize("written", SETTINGS)
def test_what_a_study_says_and_leaves_out_comes_back_from_a_lake(tmp_path: Path, written: str) -> None:
    """Each table with no more than it needs: later rounds are opened by what the lake kept."""
    path = loaded(tmp_path, "example-stages").source
    Path(path).write_text(f"{Path(path).read_text()}\n{written}\n")
    study = load(Path(path))
    kept = from_config(orjson.loads(to_json(study)))
    assert (kept.claims, kept.retry, kept.budget, kept.shards, kept.unsupported) == (
        study.claims, study.retry, study.budget, study.shards, study.unsupported,
    )  # fmt: skip


DAMAGED: dict[str, tuple[str, Any]] = {
    "a key is gone": ("turns", None),
    "a key nobody knows": ("colour", "red"),
    "a switch in place of a number": ("repeats", True),
    "a text in place of a number": ("repeats", "two"),
    "a rule that cannot be read": ("rule", {"task": "guessing"}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_settings_say_that_the_study_must_be_planned_again(tmp_path: Path, name: str) -> None:
    key, value = DAMAGED[name]
    study = loaded(tmp_path, "example-stages")
    config = to_config(study)
    config["stages"][0] = {other: old for other, old in config["stages"][0].items() if other != key}
    if value is not None:
        config["stages"][0][key] = value
    with pytest.raises(LakeError, match=r"damaged|holds a study of the task") as caught:
        from_config(config)
    assert caught.value.hint
