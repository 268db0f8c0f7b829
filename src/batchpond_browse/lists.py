"""Lists of judgments, pairs and items: filters and orders by their names in an address, a page at a time.

A page begins behind the last row of the one before (its place in the order and its key), never at a number of rows, so
that no page costs more than the first. In their own order judgments are looked for a stretch of the plan at a time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond_browse.asking import FOLDER, Lake, Query, Row, query

PAGE_ROWS: Final = 50
STRETCH_SLOTS: Final = 20_000
STRETCH_PAIRS: Final = 250
NONE: Final = " AND FALSE"
WORDS_MAX: Final = 500
PAGING: Final = ("sort", "dir", "after", "from")


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """Return what each list can be asked."""
    return tomllib.loads((FOLDER / "lists.toml").read_text("utf-8"))


def filter_names(kind: str) -> list[str]:
    """Return the names of a list's filters, its search among them."""
    about = kinds()[kind]
    return [*about.get("voices", {}), *about["filters"], *about["search"]]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list, the query that they came from, and the parameters of the page behind it."""

    rows: list[Row]
    asked: Query
    more: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks of a list of one study; raises UsageError for a name or a word that it does not know."""

    kind: str
    study: str
    given: Mapping[str, str]
    n_rows: int = PAGE_ROWS

    def __post_init__(self) -> None:
        about = kinds()[self.kind]
        orders = [*about["sorts"], *about["amounts"]]
        if self.sort not in orders:
            raise UsageError(f"no order {self.sort!r}", hint="orders: " + ", ".join(orders))
        for name, value in self.filters.items():
            if name not in filter_names(self.kind):
                raise UsageError(f"no filter {name!r}", hint="filters: " + ", ".join(filter_names(self.kind)))
            words = about["filters"].get(name)
            if isinstance(words, dict) and value not in words:
                raise UsageError(f"{name} cannot be {value!r}", hint="one of " + ", ".join(words))
            if len(value) > WORDS_MAX:
                raise UsageError(f"{name} is longer than {WORDS_MAX} characters", hint="ask for less")

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set."""
        return {name: value for name, value in self.given.items() if value and name not in PAGING}

    @property
    def sort(self) -> str:
        """The name of the order."""
        return self.given.get("sort") or "place"

    @property
    def is_down(self) -> bool:
        """Whether the largest come first."""
        return self.given.get("dir") == "down"

    @property
    def expression(self) -> str:
        """What is ordered by, before the key; empty for the key alone."""
        about = kinds()[self.kind]
        return str(about["sorts"].get(self.sort, about["amounts"].get(self.sort)))

    def query(self, planned: str = "", imported: str = "") -> Query:
        """Return the SELECT of the page; further conditions narrow the planned and the imported part of judgments."""
        about = kinds()[self.kind]
        values: dict[str, object] = {"study": self.study}
        voices = self._conditions(about.get("voices", {}), values)
        conditions = self._conditions({**about["filters"], **about["search"]}, values)
        conditions += self._behind(about["key"], values)
        down = " DESC" if self.is_down else ""
        order = [f"{self.expression}{down}", about["key"]] if self.expression else [f"{about['key']}{down}"]
        return query(
            about["file"], values, voices="".join(f" AND {voice}" for voice in voices), planned=planned,
            imported=imported, conditions="\n    AND ".join(conditions) or "TRUE", order=", ".join(order),
            limit=str(self.n_rows + 1), columns=f", {self.expression or about['key']} AS place",
        )  # fmt: skip

    def candidates(self, after: int) -> Query:
        """Return the SELECT of the slots behind one at which to look for rows of the page."""
        values: dict[str, object] = {"study": self.study}
        conditions = self._conditions(kinds()[self.kind]["candidates"], values)
        further = "".join(f" AND {one}" for one in conditions)
        return query("candidates", values, after=str(after), conditions=further, limit=str(self.n_candidates))

    @property
    def n_candidates(self) -> int:
        """How many slots to look at before all of them: many where the tables below `results` cannot tell which."""
        return STRETCH_SLOTS if self.given.get("state") in {"errors", "open"} else self.n_rows + 1

    def _conditions(self, known: Mapping[str, Any], values: dict[str, object]) -> list[str]:
        """Return the conditions of the filters that are set, of those that are known here; adds what they name."""
        found = []
        for name, value in self.filters.items():
            condition = known.get(name)
            if isinstance(condition, dict):
                found.append(condition[value])
            elif condition:
                found.append(condition)
                values[name] = value
        return found

    def _behind(self, key: str, values: dict[str, object]) -> Iterator[str]:
        after = self.given.get("after")
        if not after:
            return
        values["after"] = after
        sign = "<" if self.is_down else ">"
        if not self.expression:
            yield f"{key} {sign} $after"
            return
        place = self.given.get("from", "")
        values["from"] = _number(place) if self.sort in kinds()[self.kind]["amounts"] else place
        yield f"({self.expression} {sign} $from OR ({self.expression} = $from AND {key} > $after))"


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"{word!r} is no place in this order", hint="begin the list anew") from None


def page(lake: Lake, wish: Wish) -> Page:
    """Return a page of a list."""
    asked = wish.query()
    is_large = sum(row["n_planned"] for row in lake.rows(query("facets", {"study": wish.study}))) > STRETCH_SLOTS
    look = {"rows": _rows_in_order, "pairs": _pairs_in_order}.get(wish.kind)
    rows = look(lake, wish) if look and is_large and not wish.expression and not wish.is_down else lake.rows(asked)
    more = None
    if len(rows) > wish.n_rows:
        rows = rows[: wish.n_rows]
        last = rows[-1]
        more = {**wish.given, "after": str(last[kinds()[wish.kind]["key"]]), "from": str(last["place"])}
    return Page(rows, asked, more)


def _rows_in_order(lake: Lake, wish: Wish) -> list[Row]:
    """Return what the query of a page of judgments returns, in its own order: the planned ones, then the imported.

    The plan says where they can be found; to look there takes less than to make all results of a study.
    """
    after, rows = wish.given.get("after", ""), []
    if not after.startswith("x"):
        slots = [row["slot"] for row in lake.rows(wish.candidates(int(after[1:]) if after[1:].isdecimal() else -1))]
        if slots:
            there = f" AND slot BETWEEN {slots[0]} AND {slots[-1]}"
            if wish.n_candidates < STRETCH_SLOTS:
                there += f" AND slot IN ({', '.join(map(str, slots))})"
            rows = lake.rows(wish.query(there, NONE))
        if len(rows) <= wish.n_rows and len(slots) == wish.n_candidates:
            rows = lake.rows(wish.query("", NONE))
    return rows if len(rows) > wish.n_rows else (rows + lake.rows(wish.query(NONE)))[: wish.n_rows + 1]


def _pairs_in_order(lake: Lake, wish: Wish) -> list[Row]:
    """Return what the query of a page of pairs returns: from the next pairs, if the page is full with those."""
    place = {"study": wish.study, "after": wish.given.get("after", "")}
    (reach,) = lake.rows(query("places", place, limit=str(STRETCH_PAIRS)))
    near = wish.query(" AND item_lo BETWEEN $reach_lo AND $reach_hi")
    near = Query(near.sql, {**near.values, "reach_lo": reach["lo"], "reach_hi": reach["hi"]})
    rows = [row for row in lake.rows(near) if row["case_key"] <= reach["until"]]
    return rows if len(rows) > wish.n_rows else lake.rows(wish.query())
