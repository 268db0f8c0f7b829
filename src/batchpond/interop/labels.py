"""People's labels: sheets of what a study's judges judged, drawn by lot and blind, and what people wrote in them.

A unit is a pair, or an item, that a model judged. A sheet shows its texts and never what a judge said of it, whose
they are or why it was drawn; of a pair, which text stands first is a matter of lot. The unit's key leads back from a
label to the unit, and to the standing by which it was drawn. By strata or at random each unit that nobody has labelled
has the same chance: a sheet by strata takes every n-th of the units in the order of criterion and standing, from a
random start (systematic sampling; Cochran 1977, chapter 8), which gives each standing its true share. By doubt a
standing has the more of them the more often judges are wrong there (Neyman 1934), and its units the same chance among
themselves. Rows stand in random order, so that the first of them, where somebody stops, are a sample too.

A label is kept with its stratum, of how many units it stands, and the view `truths` weighs it by that: each stratum
counts by its units, however many of them are labelled and in however many draws. Strata are standings of a task, all
criteria together: cells of criterion and standing would often hold one label, or none.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchpond.errors import UsageError
from batchpond.interop.foreign import Defaults, Findings, ForeignJudgment, Reader, SourceFile, csv_header, csv_rows
from batchpond.interop.imports import ForeignReport, import_foreign
from batchpond.lake import tables
from batchpond.lake.disk import placed
from batchpond.lake.store import Store
from batchpond.model import Outcome, Verdict
from batchpond.tasks import registry
from batchpond.tasks.base import TIE_KINDS, Judgment
from batchpond.text import Shown, defused, did_you_mean, plural
from batchpond.views import read

if TYPE_CHECKING:
    import duckdb

_query: Final = partial(tables.query, __package__)
CHOICES_MAX: Final = 12
TEXTS_BYTES_MAX: Final = 64 << 20
PICTURE_BYTES_MAX: Final = 3_000_000
PICTURE_PX: Final = 2_048
RATER: Final = "person"
TAKEN_BACK: Final = "-"
"""The label that takes back what its rater said before."""
COLUMNS: Final = ("study", "key", "criterion", "question", "text_1", "text_2", "choices", "label", "comment")
_TEMPLATE: Final = Path(__file__).with_name("labels.html")
CARD: Final = Path(__file__).with_name("card")
"""What a sheet's page and the pages of `browse` have in common: a text, a choice, their style, and the keys."""
_ITEMS: Final = ("item", "item_1", "item_2")
"""The columns of a table of labels that name what a row is about: an item, or the two of a pair."""
_LETTERS: Final = "ghjkmnpqrstuvwxy"
_WRONG: Final = {"agreement": 0.1, "disagreement": 0.4, "flip": 0.25, "unread": 0.25}
"""How often judges are taken to be wrong before people have labelled anything, by standing: five labels' worth."""
_WRONG_LABELS: Final = 5
_STANDINGS: Final = tuple(_WRONG)
_PLACES: Final = ("1", "2")
_DECIDED: Final = {place: Judgment(verdict, Outcome.DECIDED) for place, verdict in zip(_PLACES, Verdict, strict=False)}
_PUT: Final = {
    "1": ("1", "Text 1 is better"), "2": ("2", "Text 2 is better"), "tie": ("t", "They are equal"),
    "both_good": ("g", "Both are good"), "both_bad": ("x", "Both are bad"),
}  # fmt: skip
_KEYS: Final = "1234567890qw"
Choice = tuple[str, str, str]
"""What may be said on a page: the word of it, the key that says it, and how it is put."""
_PAIR: Final = {**_DECIDED, "tie": Judgment(Verdict.TIE, Outcome.TIE), **TIE_KINDS}


class By(StrEnum):
    """How units are drawn: in their true shares of criterion and standing, by lot alone, or where judges err most."""

    STRATA = "strata"
    RANDOM = "random"
    DOUBT = "doubt"


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a sheet: what a person sees, and what may be said of it.

    `pictures` has what is shown with each text, as `data:` addresses; a table of texts alone leaves them out.
    """

    key: str
    criterion: str
    question: str
    texts: tuple[str, ...]
    choices: tuple[str, ...]
    pictures: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Stratum:
    """The units of a task that stand alike among its judges, how many people had labelled, and how many were drawn."""

    task: str
    standing: str
    n_units: int
    n_labelled: int
    n_drawn: int


@dataclass(frozen=True, slots=True)
class Sheet(Shown):
    """Units drawn from `n_units` that no person has labelled yet; `standings` counts what the judges hold of them."""

    study: str
    questions: list[Question]
    n_units: int
    n_labelled: int
    standings: dict[str, int]
    strata: list[Stratum] = field(default_factory=list)


def draw(lake_path: Path, study: str, n: int, *, by: By = By.STRATA, seed: int = 0) -> Sheet:
    """Draw `n` units of a study to be labelled; the same seed draws the same of the same units.

    Raises UsageError for an unknown study, where nothing is left to label, where a text is not in the lake, and for
    free answers, which have no few words to choose from.
    """

    def ask(lens: duckdb.DuckDBPyConnection) -> Sheet:
        read.check_study(lens, study)
        choices = _choices(lens, study)
        of_study = {"study": study, "free": _free(choices)}
        strata = read.plain_rows(lens, _STRATA, of_study)
        n_units, n_labelled = (sum(one[name] for one in strata) for name in ("n_units", "n_labelled"))
        if n_units == n_labelled:
            why = "people have labelled all of them" if n_units else "no model has judged anything"
            raise UsageError(f"study {study} has nothing left to label: {why}", hint="`batchpond sync` brings answers")
        start = int(hashlib.sha256(f"start {seed}".encode()).hexdigest()[:13], 16) / 16**13  # from 0 to 1
        lot: dict[str, Any] = {**of_study, "seed": f"{seed}", "start": start, "n": n}
        if by is By.DOUBT:
            _check_strata_known(lens, study)
            shares = shared_out(strata, n)
            lot["n"] = {"of": [f"{one['task']} {one['standing']}" for one in strata], "n": shares}
        drawn = read.plain_rows(lens, _DRAWN[by], lot)
        questions = list(_questions(lens, study, choices, drawn))
        standings = dict(sorted(Counter(unit["standing"] for unit in drawn).items()))
        n_drawn = Counter((unit["task"], unit["standing"]) for unit in drawn)
        known = ("task", "standing", "n_units", "n_labelled")
        told = [
            Stratum(**{name: one[name] for name in known}, n_drawn=n_drawn[one["task"], one["standing"]])
            for one in strata
        ]
        return Sheet(study, questions, n_units - n_labelled, n_labelled, standings, told)

    with read.asked(lake_path, ask) as sheet:
        return sheet


def _free(choices: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the fields that have no few words to choose from."""
    fields = ((name.partition(" ")[2], len(words)) for name, words in choices.items() if " " in name)
    return [name for name, n in fields if not 1 < n <= CHOICES_MAX]


def _check_strata_known(lens: duckdb.DuckDBPyConnection, study: str) -> None:
    """Raise UsageError where labels are of unknown strata: nothing would be weighed, and all lean to the doubtful."""
    unknown = "SELECT count(*) FROM imported_judgments WHERE provider = 'human' AND purpose IS NULL AND study = $study"
    ((n_unknown,),) = lens.execute(unknown, {"study": study}).fetchall()
    if n_unknown:
        raise UsageError(
            f"of {plural(n_unknown, 'label')} of study {study} nobody knows how likely they were: none can be weighed",
            hint="`batchpond import labels` their sheets or tables once more, or draw `--by strata`",
        )


def shared_out(strata: Sequence[Mapping[str, Any]], n: int) -> list[int]:
    """Share `n` labels out so that errors are least: two to a stratum, then where N^2 s^2 / n falls most (Wright 2012).

    s^2 is how often judges were wrong of the units of a stratum of which people told, and before that are taken to be.
    """
    totals, n_drawn = [one["n_labelled"] for one in strata], [0] * len(strata)
    errors = []
    for one in strata:
        wrong = one["n_wrong"] + _WRONG_LABELS * _WRONG[one["standing"]]
        errors.append(one["n_units"] ** 2 * wrong / (one["n_told"] + _WRONG_LABELS))
    for _ in range(n):
        places = [at for at, one in enumerate(strata) if totals[at] < one["n_units"]]
        if not places:
            break
        most = max(places, key=lambda at: (totals[at] < 2, errors[at] / (totals[at] * (totals[at] + 1) or 1)))
        totals[most] += 1
        n_drawn[most] += 1
    return n_drawn


def letter(unit: Mapping[str, Any]) -> str:
    """Return the last letter of a key: which text stands first, and the standing, turned by a number of the unit."""
    said = 2 * _STANDINGS.index(unit["standing"]) + (not unit["is_lo_first"])
    return _LETTERS[(said + _turn(unit["unit_key"])) % len(_LETTERS)]


def _turn(unit_key: str) -> int:
    return int(hashlib.sha256(unit_key.encode()).hexdigest()[0], 16)


def said_by(key: str) -> tuple[bool, str | None] | None:
    """Return whether the lower item stands first, and the standing by which it was drawn, where a key says that."""
    if key[-1:] in {"a", "b"}:  # of a table, a page of `browse`, and sheets of before
        return key[-1] == "a", None
    said = (_LETTERS.find(key[-1:]) - _turn(key[:-1])) % len(_LETTERS)
    is_known = bool(key) and key[-1] in _LETTERS and said < 2 * len(_STANDINGS)
    return (said % 2 == 0, _STANDINGS[said // 2]) if is_known else None


def _questions(
    lens: duckdb.DuckDBPyConnection, study: str, choices: Mapping[str, tuple[str, ...]], drawn: Sequence[dict[str, Any]]
) -> Iterator[Question]:
    ids = sorted({unit[name] for unit in drawn for name in ("item_lo", "item_hi") if unit[name] is not None})
    shown_items = _query("shown_items", media=read.media("chosen"))
    items = {row["item_id"]: row for row in read.plain_rows(lens, shown_items, {"study": study, "ids": ids})}
    pictured = read.drawn(lens, (row["shown"] for row in items.values()), PICTURE_PX, *[PICTURE_BYTES_MAX] * 2)
    criteria = {row["rubric_id"]: row["words"] for row in read.plain_rows(lens, _query("criteria"), {"study": study})}
    n_bytes = 0
    for unit in drawn:
        named = [name for name in (unit["item_lo"], unit["item_hi"]) if name is not None]
        missing = [name for name in named if name not in items]
        if missing:
            raise UsageError(
                f"the lake holds no text of {missing[0]}, which a person would have to read",
                hint="import the texts that were judged, or label elsewhere and `batchpond import judgments`",
            )
        order = named if unit["is_lo_first"] else named[::-1]
        sides = [read.beside(items[name]["text"], items[name]["shown"], pictured) for name in order]
        texts, pictures = tuple(text for text, _ in sides), tuple(tuple(some.values()) for _, some in sides)
        n_bytes += sum(map(len, (*texts, *chain.from_iterable(pictures))))
        if n_bytes > TEXTS_BYTES_MAX:
            raise UsageError("the sheet would hold more than 64 MiB of texts and pictures", hint="draw fewer: --sample")
        question = next((items[name]["question"] for name in order if items[name]["question"]), "")
        criterion = criteria.get(unit["rubric_id"]) or unit["rubric_id"] or ""
        key = f"{unit['unit_key']}{letter(unit)}"
        yield Question(key, criterion, question, texts, _of(choices, unit, study)[1], pictures)


def choices(lake_path: Path, study: str) -> dict[str, tuple[str, ...]]:
    """Return what may be said of a unit of a study, as `said_of` looks it up."""
    with read.asked(lake_path, lambda lens: _choices(lens, study)) as found:
        return found


def _choices(lens: duckdb.DuckDBPyConnection, study: str) -> dict[str, tuple[str, ...]]:
    """Return what may be said of a unit of each task: the words of the task's rule, or those that judges gave."""
    sql = "SELECT parsers FROM studies JOIN studies_current USING (study, study_version) WHERE study = $study"
    parsers = lens.execute(sql, {"study": study}).fetchall()
    rules = {name: rule for (text,) in parsers for name, rule in json.loads(text or "{}").items()}
    of_pair = tuple(_PAIR) if any("-kinds-" in name for name in rules) else (*_PLACES, "tie")
    found = {"pair": of_pair, "compliance": ("true", "false")}
    for rule in rules.values():
        found |= registry.rule_of(rule).choices
    said: dict[str, list[str]] = {}
    for row in read.plain_rows(lens, _SAID, {"study": study, "free": []}):
        said.setdefault(row["task"], []).append(row["held"])
    return {task: tuple(words) for task, words in said.items()} | found


def said_of(choices: Mapping[str, tuple[str, ...]], task: str, rubric_id: str | None) -> tuple[str, tuple[str, ...]]:
    """Return what may be said of a unit, and of which kind that is: by its field, where an answer has many."""
    names = (f"score {rubric_id}", f"label {rubric_id}") if task == "prompts" else ()
    name = next((name for name in names if name in choices), task)
    return name.partition(" ")[0], choices.get(name, ())


def _of(choices: Mapping[str, tuple[str, ...]], unit: Mapping[str, Any], study: str) -> tuple[str, tuple[str, ...]]:
    kind, words = said_of(choices, unit["task"], unit["rubric_id"])
    if not 1 < len(words) <= CHOICES_MAX:
        raise UsageError(
            f"judges of study {study} gave {len(words):,} different answers to {unit['task']}: none to choose from",
            hint=f"a sheet offers 2 to {CHOICES_MAX} answers",
        )
    return kind, words


def offered(words: Sequence[str], *, is_pair: bool) -> list[Choice]:
    """Return what may be said of a unit as a page offers it."""
    if is_pair:
        return [(word, *_PUT[word]) for word in words]
    return [(word, key, word) for word, key in zip(words, _KEYS, strict=False)]


def write(sheet: Sheet, path: Path, *, force: bool = False) -> None:
    """Write a sheet as CSV or, by the path's ending, as one page for a browser; raises UsageError where one stands."""
    content = _page(sheet) if path.suffix.lower() in {".html", ".htm"} else _table(sheet)
    with placed(path, force=force) as staged:
        staged.write_text(content, encoding="utf-8", newline="")


def _table(sheet: Sheet) -> str:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    for question in sheet.questions:
        first, *second = _texts_alone(question)
        shown = (sheet.study, question.key, question.criterion, question.question, first, *(second or [""]))
        rows.writerow([*map(defused, shown), " | ".join(question.choices), "", ""])
    return f"\ufeff{out.getvalue()}"


def _texts_alone(question: Question) -> Iterator[str]:
    """Yield the texts, with a line for each picture, which a table cannot show."""
    for text, pictures in zip(question.texts, question.pictures or repeat(()), strict=False):
        yield "\n".join([text, *(f"[{found.partition(';')[0][5:]}: shown in a page, .html]" for found in pictures)])


def _page(sheet: Sheet) -> str:
    """Return a page that asks nobody else: its policy allows its own script and style and nothing more."""
    parts = {path.name.partition(".")[0]: path.read_text("utf-8") for path in CARD.iterdir()}
    page = _TEMPLATE.read_text("utf-8").replace("CARD_STYLE", parts.pop("card")).replace("CARD_KEYS", parts.pop("keys"))
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = [asdict(one) | {"choices": offered(one.choices, is_pair=len(one.texts) > 1)} for one in sheet.questions]
    asked = {"study": sheet.study, "parts": parts, "questions": shown}
    data = json.dumps(asked, ensure_ascii=False)
    inert = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return page.replace("SCRIPT_DIGEST", digest).replace("SHEET_DATA", inert)


def reader(lake_path: Path, rater: str | None = None) -> Reader:
    """Return what reads filled-in sheets; `rater` is who filled them in, where a column `rater` does not say.

    A row without a label was left blank and says nothing. What names no unit of the study, or says what its task has
    no word for, is noted as a problem, and then nothing at all is imported. A table that was no sheet, of a data set's
    own labels, names an `item`, or `item_1` and `item_2`; what no model has judged is left out of it.
    """

    def labels(files: Sequence[SourceFile], given: Defaults, findings: Findings) -> Iterator[ForeignJudgment]:
        for file in files:
            header = csv_header(file)
            is_table = "key" not in header and any(name in header for name in _ITEMS)
            wanted, hint = ("study", "key", "label"), "save the sheet as CSV with commas, as it was drawn"
            if is_table:
                items = _ITEMS[:1] if _ITEMS[0] in header else _ITEMS[1:]
                wanted = (*items, "label") if given.study else ("study", *items, "label")
                hint = "a table of labels has item, or item_1 and item_2, and label; --study says of which study"
            if missing := [name for name in wanted if name not in header]:
                raise UsageError(f"{file.path}: no column {missing[0]!r}", hint=did_you_mean(missing[0], header, hint))
            rows = [(place, row) for place, row in csv_rows(file, findings) if row.get("label", "").strip()]
            if not rows and not findings.problems.n:
                raise UsageError(f"{file.path}: no row has a label", hint="fill in the column label, and save the file")
            keys = partial(_keys_of_table, file=file.path, findings=findings) if is_table else _keys_of_sheet
            of_study: dict[str, list[_Row]] = {}
            for place, row in rows:
                of_study.setdefault(row.get("study") or given.study or "", []).append((place, row))
            for study, own in sorted(of_study.items()):
                yield from _labelled(lake_path, study, own, keys, rater, findings)

    return labels


def hand_in(lake_path: Path, sheet: Path) -> None:
    """Import a filled-in sheet that names its raters, as `import_labels` does."""
    import_labels(Store.open(lake_path), [sheet])


def import_labels(
    store: Store, paths: Sequence[Path], *, rater: str | None = None, study: str | None = None
) -> ForeignReport:
    """Import filled-in sheets, or tables of labels of a `study`, whole or not at all; raises as `import_foreign` does.

    What a rater said of the same before is counted no more, and stays on record.
    """
    read, of_study = reader(store.path, rater), Defaults(study=study)
    return import_foreign(store, read, paths, defaults=of_study, is_relabelling=True)


_Row = tuple[str, Mapping[str, str]]
_Units = Mapping[str, Mapping[str, Any]]
_Choices = dict[str, tuple[str, ...]]
_Sizes = dict[tuple[str, str | None], int]
_Keys = Callable[["duckdb.DuckDBPyConnection", str, Sequence[_Row]], tuple[_Units, list[tuple[str, str, str]]]]
"""Returns the units that rows label, by their keys, and of each row its place, the sheet's key and what it says."""


def _keys_of_sheet(
    lens: duckdb.DuckDBPyConnection, study: str, rows: Sequence[_Row]
) -> tuple[_Units, list[tuple[str, str, str]]]:
    wanted = sorted({row.get("key", "")[:-1] for _, row in rows})
    units = f"SELECT * FROM ({_UNITS}) WHERE unit_key IN (SELECT unnest($keys))"
    found = read.plain_rows(lens, units, {"study": study, "keys": wanted, "free": []})
    told = [(place, row.get("key", ""), row["label"]) for place, row in rows]
    return {unit["unit_key"]: unit for unit in found}, told


def _keys_of_table(
    lens: duckdb.DuckDBPyConnection, study: str, rows: Sequence[_Row], *, file: Path, findings: Findings
) -> tuple[_Units, list[tuple[str, str, str]]]:
    """Find what a data set's rows label, by items, smaller id first in a pair, and by the rubric if a row has one."""
    named = {place: tuple(row[name] for name in _ITEMS if row.get(name)) for place, row in rows}
    sql = f"SELECT * FROM ({_UNITS}) WHERE is_to_draw AND item_lo IN (SELECT unnest($items))"
    wanted = {"study": study, "items": sorted({name for names in named.values() for name in names}), "free": []}
    judged: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for unit in read.plain_rows(lens, sql, wanted):
        judged.setdefault(tuple(filter(None, (unit["item_lo"], unit["item_hi"]))), []).append(unit)
    found, told, n_unjudged = dict[str, Mapping[str, Any]](), list[tuple[str, str, str]](), 0
    for place, row in rows:
        names = tuple(sorted(named[place]))
        units = [one for one in judged.get(names, ()) if row.get("rubric") in (None, "", one["rubric_id"])]
        if len(units) > 1:
            shown = ", ".join(f"{one['task']} by {one['rubric_id']}" for one in units[:CHOICES_MAX])
            findings.problem(place, f"may be about each of {shown}: a column `rubric` says which")
        for unit in units if len(units) == 1 else ():
            side, label = "a" if named[place] == names else "b", row["label"].strip()
            said = _winner(label, unit, is_lo_first=side == "a")
            if label in _PLACES and said != label:
                findings.problem(place, f"says {label!r}, which is a place and the id of what stands at the other one")
                continue
            found[unit["unit_key"]] = unit
            told.append((place, f"{unit['unit_key']}{side}", said))
        n_unjudged += not units
    if n_unjudged:
        findings.skip(f"{file}", f"{plural(n_unjudged, 'row')} of what no model of {study} has judged, by that rubric")
    return found, told


def _winner(label: str, unit: Mapping[str, Any], *, is_lo_first: bool) -> str:
    """Return a label of a pair as a sheet has it, where it names the better item or candidate."""
    for side in ("lo", "hi") if unit["item_hi"] is not None else ():
        if label in (unit[f"item_{side}"], unit[f"candidate_{side}"]):
            return "1" if (side == "lo") == is_lo_first else "2"
    return label


def _labelled(
    lake_path: Path, study: str, rows: Sequence[_Row], keys: _Keys, rater: str | None, findings: Findings
) -> Iterator[ForeignJudgment]:
    def ask(lens: duckdb.DuckDBPyConnection) -> tuple[_Units, list[tuple[str, str, str]], _Choices, _Sizes]:
        read.check_study(lens, study)
        choices = _choices(lens, study)
        strata = read.plain_rows(lens, _STRATA, {"study": study, "free": _free(choices)})
        return *keys(lens, study, rows), choices, {(one["task"], one["standing"]): one["n_units"] for one in strata}

    with read.asked(lake_path, ask) as (units, told, choices, sizes):
        of_place = dict(rows)
    for place, key, label in told:
        row, unit, told_by = of_place[place], units.get(key[:-1]), said_by(key)
        if unit is None or told_by is None:
            findings.problem(place, f"names no unit of study {study}: key {key!r}")
            continue
        kind, words = _of(choices, unit, study)
        # A data set's people tell ties apart where no judge was asked to.
        known = (*words, *TIE_KINDS) if kind == "pair" else words
        said = {word.lower(): word for word in known}.get(label.strip().lower())
        if said is None and label.strip() != TAKEN_BACK:
            findings.problem(place, f"says {label!r} where one of {', '.join(words)} can be said")
            continue
        is_lo_first, drawn = told_by
        standing = drawn if (unit["task"], drawn) in sizes else unit["standing"]
        about = {**unit, "kind": kind, "is_lo_first": is_lo_first, "standing": standing}
        about["n_alike"] = sizes.get((unit["task"], standing))
        yield _judgment(study, place, about, said, row.get("rater") or rater or RATER, row.get("comment"))


def _judgment(
    study: str, place: str, unit: Mapping[str, Any], label: str | None, rater: str, comment: str | None
) -> ForeignJudgment:
    task, sides = unit["task"], ("lo", "hi")
    decided = Judgment(None, Outcome.DECIDED, explanation=comment)
    if unit["kind"] == "pair":
        task, sides = "pairwise", sides if unit["is_lo_first"] else ("hi", "lo")
    match unit["kind"]:
        case _ if label is None:
            found = Judgment(None, Outcome.MISSING)
        case "pair":
            found = _PAIR[label]._replace(explanation=comment)
        case "likert" | "score":
            found = decided._replace(score=float(label))
        case "compliance":
            found = decided._replace(verdict=label)
        case _:
            found = decided._replace(label=label)
    item_first, item_second, candidate_first, candidate_second = (
        unit[f"{name}_{side}"] for name in ("item", "candidate") for side in sides
    )
    said = Defaults(study=study, rubric_id=unit["rubric_id"], provider="human", request_model=rater)
    return ForeignJudgment(
        place, task, found, said, unit["unit_id"], item_first, item_second, candidate_first, candidate_second,
        unit["turn_no"], purpose=f"{unit['standing']} {unit['n_alike']}" if unit["n_alike"] else None,
    )  # fmt: skip


_VOTES: Final = _query("votes")
_UNITS: Final = _query("units", votes=_VOTES)
_SAID: Final = _query("said", votes=_VOTES)
_STRATA: Final = _query("strata", units=_UNITS)
_IN_ALL: Final = {"within": "", "n": "$n"}
_IN_EACH: Final = {
    "within": "PARTITION BY task, standing ",
    "n": "list_extract($n.n, list_position($n.of, concat(task, ' ', standing)))",
}
_DRAWN: Final = {
    By.STRATA: _query("drawn", units=_UNITS, order="task, rubric_id, standing, lot", **_IN_ALL),
    By.RANDOM: _query("drawn", units=_UNITS, order="lot", **_IN_ALL),
    By.DOUBT: _query("drawn", units=_UNITS, order="rubric_id, lot", **_IN_EACH),
}
