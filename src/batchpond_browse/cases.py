"""One pair or item with all that was said of it, and one judgment with all that there is of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond_browse.asking import Lake, Query, Row, listed, query

PAIR: Final = "pair"
PAIR_TASKS: Final = frozenset({"pairwise", "ranking"})
# Which columns of a judgment name its case, where the case is a pair, and where it is a single item.
_PAIR: Final = {
    "rubric": "rubric_id = $rubric",
    "unit": "coalesce(unit_id, '') = $unit",
    "lo": "least(item_first, item_second) = $lo",
    "hi": "greatest(item_first, item_second) = $hi",
}
_ITEM: Final = {
    "rubric": "rubric_id = $rubric",
    "task": "task = $task",
    "unit": "coalesce(unit_id, '') = $unit",
    "item": "coalesce(item_first, candidate_first) = $item",
    "candidate": "candidate_first = $candidate",
    "turn": "CAST(turn_no AS VARCHAR) = $turn",
}
WORDS: Final = ("text", "thoughts", "refusal", "error_message", "body", "line")
NAMES: Final = ("task", "rubric", "unit", "lo", "hi", "item", "candidate", "turn")


@dataclass(frozen=True, slots=True)
class Voice:
    """What one judge says with one template: its judgments with the lower item first, and with the higher one."""

    template_id: str
    judge: str
    is_human: bool
    columns: tuple[list[Row], list[Row]]

    @property
    def standing(self) -> str:
        """Whether the two orders say the same, where each holds one word alone."""
        words = [{_better(row) for row in column} for column in self.columns]
        if any(len(found) != 1 or None in found for found in words):
            return ""
        return "same" if words[0] == words[1] else "flip"


@dataclass(frozen=True, slots=True)
class Case:
    """A pair or an item: its texts by side, who said what, and how a label of it is named."""

    study: str
    given: Mapping[str, str]
    rows: list[Row]
    texts: list[tuple[str, Row | None]]
    question: str
    criterion: str
    voices: list[Voice]
    asked: Query

    @property
    def is_pair(self) -> bool:
        """Whether it is two items, in two orders."""
        return "hi" in self.given

    @property
    def task(self) -> str:
        """The task that a label of it is of."""
        return PAIR if self.is_pair else str(self.rows[0]["task"])

    @property
    def unit_key(self) -> str:
        """The key by which labels name it, as a sheet of `batchpond label` has it without its last letter."""
        first = self.rows[0]
        lo, hi = (self.given["lo"], self.given["hi"]) if self.is_pair else (_item(first) or "", "")
        turn = -1 if self.is_pair or first["turn_no"] is None else first["turn_no"]
        parts = (self.study, self.task, first["rubric_id"] or "", first["unit_id"], lo, hi, str(turn))
        return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:20]


def names_of(row: Row) -> dict[str, str]:
    """Return the parameters that lead to the case of a judgment; none for one that is of no item."""
    first, second = _item(row), row.get("item_second")
    if first is None:
        return {}
    found: dict[str, Any] = {"rubric": row["rubric_id"], "unit": row["unit_id"]}
    if second is not None:
        found |= {"lo": min(first, second, key=str.encode), "hi": max(first, second, key=str.encode)}
    else:
        found |= {"task": row["task"], "item": first, "candidate": row.get("candidate_first"), "turn": row["turn_no"]}
    return {name: str(value) for name, value in found.items() if value is not None}


def case(lake: Lake, study: str, given: Mapping[str, str], *, is_whole: bool = False) -> Case:
    """Return a case, with prompts and raw lines where it is to be whole.

    Raises UsageError where the study has no judgment of it.
    """
    given = {"unit": "", **{name: given[name] for name in NAMES if name in given}}
    known = _PAIR if "hi" in given else _ITEM
    if not ({"lo", "hi"} if known is _PAIR else {"item"}) <= given.keys():
        raise UsageError("a case needs lo and hi, or item", hint="open it from a list")
    named = {name: value for name, value in given.items() if name in known}
    where = " AND ".join(known[name] for name in named)
    of_pairs = " AND item_second IS NULL" if known is _ITEM else ""
    asked = query("case", {"study": study, **named}, planned=where + of_pairs,
                  imported=where.replace("task = ", "coalesce(task, 'pairwise') = ") + of_pairs)  # fmt: skip
    rows = lake.rows(asked, f"study = $study AND {where}{of_pairs}")
    if not rows:
        raise UsageError(f"study {study} holds no judgment of this", hint="open it from a list")
    rubrics = {row["rubric_id"] for row in rows}
    if None in rubrics:
        rows = [row for row in rows if row["rubric_id"] is None]
    elif len(rubrics) > 1:
        raise UsageError(f"a case is of one rubric: {', '.join(sorted(rubrics))}", hint="add &rubric= to the address")
    _add_answers(lake, rows, "whole" if is_whole else "answers")
    sides = [given["lo"], given["hi"]] if "hi" in given else [given["item"]]
    texts, question = _texts(lake, sides, rows)
    rubric = rows[0]["rubric_id"]
    words = lake.rows(query("rubric", {"study": study, "rubric": rubric}))[0]["words"] if rubric else None
    return Case(study, given, rows, texts, question, words or "", list(_voices(rows, sides[0])), asked)


def _item(row: Row) -> str | None:
    found: str | None = row.get("item_first") or row.get("candidate_first")
    return found


def _better(row: Row) -> str | None:
    """Return which item a judgment holds better, `tie`, or None without a verdict; a word of another task as it is."""
    verdict = row["verdict"]
    return {"first": row["item_first"], "second": row["item_second"]}.get(verdict, verdict)


def _add_answers(lake: Lake, rows: Sequence[Row], what: str) -> None:
    ids = {name: sorted({row[name] for row in rows if row.get(name)}) for name in ("request_id", "attempt_id")}
    said = {(one["request_id"], one["attempt_id"]): one for one in lake.rows(listed(what, **ids))}
    for row in rows:
        row.update({"better": _better(row), **dict.fromkeys(WORDS)})
        row.update(said.get((row.get("request_id"), row.get("attempt_id")), {}))


def _texts(lake: Lake, sides: Sequence[str], rows: Sequence[Row]) -> tuple[list[tuple[str, Row | None]], str]:
    """Return each side's text and what it shows, those judged where its id has had several, and what it answers."""
    judged = {row.get(name) for row in rows for name in ("item_first_hash", "item_second_hash")}
    found: dict[str, Row] = {}
    for one in lake.rows(listed("texts", ids=sides)):
        if one["item_id"] not in found or one["item_hash"] in judged:
            found[one["item_id"]] = one
    question = next((found[side]["question"] for side in sides if side in found and found[side]["question"]), "")
    return [(side, found.get(side)) for side in sides], question


def _voices(rows: Sequence[Row], lo: str) -> Iterator[Voice]:
    found: dict[tuple[str, str], Voice] = {}
    for row in rows:
        judge = "/".join(row[name] for name in ("provider", "request_model", "thinking"))
        key = (row["template_id"], judge)
        voice = found.setdefault(key, Voice(*key, row["provider"] == "human", ([], [])))
        is_second = row["item_second"] is not None and row["item_first"] != lo
        voice.columns[is_second].append(row)
    yield from found.values()


@dataclass(frozen=True, slots=True)
class Judgment:
    """All that there is of one judgment: its columns, what was asked, the line as it came, and every attempt at it."""

    row: Row
    prompt: list[tuple[str, str]]
    body: str
    line: str
    history: list[Row]
    asked: Query


def judgment(lake: Lake, study: str, row_key: str) -> Judgment:
    """Return the judgment of a key of a list; raises UsageError where there is none."""
    key = row_key[1:]
    asked, near = query("imported", {"study": study, "import_key": key}), ""
    if row_key[:1] == "r" and key.isdecimal():  # ² is a digit, too
        asked, near = query("row", {"study": study, "slot": int(key)}), "study = $study AND slot = $slot"
    rows = lake.rows(asked, near)
    if not rows:
        raise UsageError(f"study {study} holds no judgment {row_key!r}", hint="open it from a list")
    _add_answers(lake, rows, "answers")
    if not (row := rows[0]).get("request_id"):
        return Judgment(row, [], "", "", [], asked)
    body = "".join(one["body"] for one in lake.rows(query("prompt", {"request_id": row["request_id"]})))
    line = ""
    if row["file_id"]:
        place = {name: row[name] for name in ("attempt_id", "file_id", "line_number")}
        line = "".join(one["line"] or f"{one['n_bytes'] or 0:,} bytes" for one in lake.rows(query("line", place)))
    history = lake.rows(query("history", {"request_id": row["request_id"]}))
    return Judgment(row, messages(body), body, line, history, asked)


def messages(body: str) -> list[tuple[str, str]]:
    """Return who says what in a request's body, whichever provider's words it is in; nothing of one that has none."""
    try:
        asked = json.loads(body)
    except ValueError:
        return []
    found = [("system", asked.get(name)) for name in ("system", "instructions", "systemInstruction")]
    for name in ("messages", "input", "contents"):
        turns = asked.get(name)
        if isinstance(turns, str):
            found.append(("user", turns))
        elif isinstance(turns, list):
            said = (turn for turn in turns if isinstance(turn, dict))
            found += [(str(turn.get("role", "user")), turn.get("content", turn.get("parts"))) for turn in said]
    return [(who, words) for who, content in found if (words := _words(content))]


def _words(content: Any) -> str:
    if isinstance(content, dict):
        return _words(content.get("text", content.get("parts", "[picture or document]")))
    if isinstance(content, list):
        return "\n".join(filter(None, map(_words, content)))
    return content if isinstance(content, str) else ""
