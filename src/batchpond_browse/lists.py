"""Lists of judgments, pairs and items: filters and orders by their names in an address, a page at a time.

A page begins behind the last row of the one before (its place in the order and its key), never at a number of rows, so
that no page costs more than the first. In a large plan a look goes by stretches; `from` says how wide the next one is.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond_browse.asking import FOLDER, Lake, Query, Row, query

PAGE_ROWS: Final = 50
STRETCH_SLOTS: Final = 20_000
STRETCH_CASES: Final = 4_000  # judgments of pairs or items, in the order of these
LOOK_S: Final = 0.8  # a page after a quarter of it has what was found so far
WIDER: Final = 4  # each stretch than the one before, while that took less than half the time: to begin one costs most
NONE: Final = " AND FALSE"
WORDS_MAX: Final = 500
PAGING: Final = ("sort", "dir", "after", "from")
Stretch = tuple[list[Row], dict[str, str], int]  # rows that were found, where to go on, and how many places are left


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """Return what each list can be asked."""
    return tomllib.loads((FOLDER / "lists.toml").read_text("utf-8").replace("{of_column}", query("of_column", {}).sql))


def filter_names(kind: str) -> list[str]:
    """Return the names of a list's filters, its search among them."""
    return [name for part in ("voices", "filters", "search") for name in kinds()[kind].get(part, {})]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list, the query that they came from, and the parameters of the page behind it."""

    rows: list[Row]
    asked: Query
    more: dict[str, str] | None
    n_left: int = 0  # places that were not looked at in time: the page behind it goes on there


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

    def width(self, first: int) -> int:
        """Return how wide a stretch of a large plan to look at: as wide as a look that goes on would have it."""
        wide = self.given.get("from", "")
        return int(wide) if wide.isdecimal() and len(wide) < 10 else first

    def query(self, planned: str = "", imported: str = "", is_within: bool = False, **named: object) -> Query:
        """Return the SELECT of the page; further conditions narrow the planned and the imported part, and the whole."""
        about = kinds()[self.kind]
        values: dict[str, object] = {"study": self.study, **named}
        voices = self._conditions(about.get("voices", {}), values)
        conditions = self._conditions({**about["filters"], **about["search"]}, values)
        conditions += ["case_key > $begin AND case_key <= $until"] if is_within else self._behind(about["key"], values)
        down = " DESC" if self.is_down else ""
        order = [f"{self.expression}{down}", about["key"]] if self.expression else [f"{about['key']}{down}"]
        return query(
            about["file"], values, voices="".join(f" AND {voice}" for voice in voices), planned=planned,
            imported=imported, conditions="\n    AND ".join(conditions) or "TRUE", order=", ".join(order),
            limit=str(self.n_rows + 1), columns=f", {self.expression or about['key']} AS place",
        )  # fmt: skip

    def candidates(self, there: str) -> Query:
        """Return the SELECT of the first slots of a stretch of the plan at which rows of the page can stand."""
        values: dict[str, object] = {"study": self.study}
        further = "".join(f" AND {one}" for one in self._conditions(kinds()[self.kind]["candidates"], values))
        return query("candidates", values, there=there, conditions=further, limit=str(self.n_rows + 1))

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
    """Return a page of a list; of a large plan, as far as a look through it came in its time."""
    asked = wish.query()
    plan = lake.rows(query("facets", {"study": wish.study}))
    n_slots = 1 + max((row["slot_last"] for row in plan if row["slot_last"] is not None), default=-1)
    has_lists = wish.kind == "pairs" and any(row["has_lists"] for row in plan)
    is_whole = n_slots <= STRETCH_SLOTS or wish.expression or wish.is_down or has_lists
    look = None if is_whole else {"rows": _rows_in_order}.get(wish.kind, _cases_in_order)
    rows: list[Row] = []
    ends_at = time.monotonic() + LOOK_S / 4
    for found, further, n_left in look(lake, wish, n_slots) if look else [(lake.rows(asked), {}, 0)]:
        rows += found
        if len(rows) > wish.n_rows:
            rows = rows[: wish.n_rows]
            key = kinds()[wish.kind]["key"]
            return Page(rows, asked, {**wish.given, "after": str(rows[-1][key]), "from": str(rows[-1]["place"])})
        if n_left and time.monotonic() > ends_at:
            return Page(rows, asked, {**wish.given, **further}, n_left)
    return Page(rows, asked, None)


def _rows_in_order(lake: Lake, wish: Wish, n_slots: int) -> Iterator[Stretch]:
    """Look for a page of judgments: those planned, stretch by stretch where the plan says, then the imported ones."""
    after, width = wish.given.get("after", ""), wish.width(STRETCH_SLOTS)
    begin = n_slots if after.startswith("x") else int(after[1:]) + 1 if after[1:].isdecimal() else 0
    while begin < n_slots:
        began_s = time.monotonic()
        end = min(begin + width, n_slots)
        there = f" AND slot BETWEEN {begin} AND {end - 1}"
        if wish.given.get("state") not in {"errors", "open"}:  # which only `results` tells
            slots = [row["slot"] for row in lake.rows(wish.candidates(there))]
            end = slots[-1] + 1 if len(slots) > wish.n_rows else end
            there = f" AND slot IN ({', '.join(map(str, slots))})" if slots else ""
        rows = lake.rows(wish.query("", NONE), f"study = $study{there}") if there else []
        begin, width = end, width * (WIDER if time.monotonic() < began_s + LOOK_S / 2 else 1)
        yield rows, {"after": f"r{end - 1:012d}", "from": str(width)}, n_slots - end
    yield lake.rows(wish.query(NONE)), {}, 0


def _cases_in_order(lake: Lake, wish: Wish, _: int) -> Iterator[Stretch]:
    """Look for a page of pairs or items, stretch by stretch in the order of their keys."""
    places = kinds()[wish.kind]["places"]
    begin, width, n_left = wish.given.get("after", ""), wish.width(STRETCH_CASES), 1
    there = "study = $study AND {item} BETWEEN $lo AND $hi AND {key} > $begin AND {key} <= $until".format(**places)
    among = f" AND {places['shown']} BETWEEN $lo AND $hi"
    while n_left:
        (reach,) = lake.rows(query("places", {"study": wish.study, "after": begin}, limit=str(width), **places))
        began_s, n_left = time.monotonic(), reach.pop("n_left")
        rows = lake.rows(wish.query(among, is_within=True, begin=begin, **reach), there)
        begin, width = reach["until"], width * (WIDER if time.monotonic() < began_s + LOOK_S / 2 else 1)
        yield rows, {"after": begin, "from": str(width)}, n_left
