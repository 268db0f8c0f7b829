"""Rubrics: what a judge is asked to look at, two built in and any number of one's own."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from batchpond import ids


@dataclass(frozen=True)
class Rubric:
    """A trait by name and description, or a policy statement; its hash changes with anything it says.

    `more` has the placeholders that templates may show of a statement besides its text.
    """

    rubric_id: str
    name: str
    description: str
    more: tuple[tuple[str, str], ...] = ()

    @cached_property
    def rubric_hash(self) -> str:
        """The digest of id, name, description and what else templates may show."""
        more = [part for pair in self.more for part in pair]
        return ids.digest("rubric", self.rubric_id, self.name, self.description, *more)


@cache
def builtin() -> dict[str, Rubric]:
    """Return the rubrics that batchpond brings, by id."""
    text = (resources.files("batchpond.tasks") / "texts" / "rubrics.toml").read_text("utf-8")
    return {
        rubric_id: Rubric(rubric_id, entry["name"], entry["description"].strip())
        for rubric_id, entry in tomllib.loads(text).items()
    }


def listing() -> list[Rubric]:
    """Return the built-in rubrics in name order."""
    return sorted(builtin().values(), key=lambda rubric: rubric.rubric_id)
