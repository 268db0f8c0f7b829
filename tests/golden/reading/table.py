"""How judges' answers are read, beside what a careful person reads in them: `python -m tests.golden.reading.table`.

`seen/` and `sealed/` hold a file of answers for each task (`likert-line` is likert in its form `line`), written for
this and labelled before the rules that are measured here were. An answer begins below a line `=== reading kind`; the
kind `cut` was ended by its length. A reading is a verdict, score, label or order, or why there is none: `ambiguous`,
`truncated`, `none`. What other tools read as a tie, 0 or no flip where nothing can be read counts as misread. Lost
otherwise is what says its verdict without the form that was asked for, or corrects itself.

The sealed answers were laid by first (their digest is held by a test) and read once the rules stood, never to mend
them. Both parts and the rules have one author, who wrote all of them by hand: the sealed figures show that the rules
were not fitted to single texts, not how they do on the answers of strangers. Answers of the kind `realistic`, and a few
retracted ones, were added to the seen part while the rules were made.

For the fourth reader 368 answers were added to the seen part: in batches of 235, 80 and 50, each labelled before its
rules read them, and three while they were mended. At first it misread 1, 12 and 8 of a batch and lost 1, 2 and 3 for
their form. One answer, which is quoted as a whole, was labelled anew as ambiguous: that reader takes nothing in a
quotation for a verdict. The sealed part has two such answers under their old labels; they are all that it loses there
for their form.

`readings.csv` has two more readings of every answer, by language models that saw no rule and no label: the texts alone,
of both parts in one shuffled order, which of them were cut, what was asked, and what the words mean. They had to say
what a careful person would record. They are of one kind, so that they are no two people. No label was changed for
them: what both decide and the labels do not are texts that were cut behind a decision, quotations, negations that say
the other, and orders from worst to best, which the rules leave to a person.
"""

from __future__ import annotations

import csv
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from batchpond.model import Finish, Response, ResponseStatus
from batchpond.tasks.base import READER, Judgment, Rule
from tests.rigs import seeds
from tests.rigs.task import rule_of

HERE: Final = Path(__file__).parent
PAGE: Final = HERE / "README.md"
READINGS: Final = HERE / "readings.csv"
RULES: Final[Mapping[str, Rule]] = {
    **{task: rule_of(task) for task in ("pairwise", "ranking", "compliance", "likert", "pressure", "listwise")},
    "likert-line": rule_of("likert", form="line"),
}
TASKS: Final = tuple(RULES)
NEWEST: Final = f"batchpond, reader {READER}"
PARTS: Final = ("seen", "sealed")
NO_READING: Final = frozenset({"ambiguous", "truncated", "none"})
NOT_FORM: Final = frozenset({"prose", "other_tag", "correction"})
"""Kinds of answers that say what they mean in no form that was asked for, or only after another answer."""


class Case(NamedTuple):
    """An answer: what a careful person reads in it, what kind of answer it is, and the text."""

    reading: str
    kind: str
    text: str

    @property
    def response(self) -> Response:
        """The response with this text."""
        finish = Finish.LENGTH if self.kind == "cut" else Finish.STOP
        return Response("c", ResponseStatus.SUCCEEDED, finish=finish, text=self.text)


class Count(NamedTuple):
    """Of how many answers what was read: what stands there, something else, or nothing, though there is something."""

    n_right: int
    n_misread: int
    n_lost_for_form: int
    n_lost_otherwise: int


Reader = Callable[[Case], str | None]


def cases(part: str, task: str) -> Iterator[Case]:
    """Yield the answers of a part and task."""
    path = HERE / part / f"{task}.txt"
    text = path.read_text("utf-8") if path.exists() else ""
    for head, body in re.findall(r"^=== (.*)\n((?:(?!===).*(?:\n|\Z))*)", text, re.MULTILINE):
        reading, kind = head.split()
        yield Case(reading, kind, body.removesuffix("\n"))


def readings(part: str, task: str) -> list[tuple[str | None, str | None]]:
    """Return what the two further readings say of a part's and task's answers, in their order; None for no decision."""
    with READINGS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["part"], row["task"]) == (part, task)]
    rows.sort(key=lambda row: int(row["number"]))
    one, two = ([None if row[name] in NO_READING else row[name] for row in rows] for name in ("one", "two"))
    return list(zip(one, two, strict=True))


def beside(part: str, task: str) -> dict[str, int]:
    """Return how the labels, and what the newest reader says, stand to the two further readings."""
    read, counts = readers(task)[NEWEST], Counter[str]()
    for case, (one, two) in zip(cases(part, task), readings(part, task), strict=True):
        label = None if case.reading in NO_READING else case.reading
        found = read(case)
        counts += Counter({
            "answers": 1,
            "alike": one == two,
            "as the label": one == two == label,
            "both decide, label none": one == two and one is not None and label is None,
            "both other than a decided label": label is not None and one == two != label,
            "misread by one": found is not None and (found != one) != (found != two),
            "misread by both": found is not None and found not in {one, two},
            "lost by both": found is None and one == two and one is not None,
        })  # fmt: skip
    return {name: counts[name] for name in BESIDE}


BESIDE: Final = (
    "answers", "alike", "as the label", "both decide, label none", "both other than a decided label", "misread by one",
    "misread by both", "lost by both",
)  # fmt: skip


def digest(part: str) -> str:
    """Return the digest of a part's texts and labels."""
    return hashlib.sha256(
        b"".join(path.read_bytes() for task in TASKS if (path := HERE / part / f"{task}.txt").exists())
    ).hexdigest()


def said(judgment: Judgment) -> str | None:
    """Return what a judgment says, by the words of the corpus; None where it says nothing."""
    if judgment.score is not None:
        return f"{judgment.score:g}"
    by_outcome = {"not_applicable": "na", "unsure": "unsure"}
    return judgment.verdict or judgment.label or by_outcome.get(judgment.outcome)


def readers(task: str) -> dict[str, Reader]:
    """Return the ways to read a task's answers, by name."""
    rule = RULES[task]
    return {
        NEWEST: lambda case: said(rule.read_with_care(case.response)),
        "batchpond, reader 3": lambda case: said(rule.read_with_care(case.response, 3)),
        "batchpond, reader 1": lambda case: said(rule.read(case.response)),
        **{name: _of_text(read) for name, read in seeds.READERS.get(task, {}).items()},
    }


def _of_text(read: Callable[[str], str | None]) -> Reader:
    return lambda case: read(case.text)


def how(case: Case, found: str | None) -> str:
    """Return whether an answer was read right, misread, or lost, and why."""
    wanted = None if case.reading in NO_READING else case.reading
    if found == wanted:
        return "right"
    if found is not None:
        return "misread"
    return "otherwise" if case.kind in NOT_FORM else "form"


def count(part: str, task: str, reader: Reader) -> Count:
    """Return how a reader does on the answers of a part and task."""
    found = Counter(how(case, reader(case)) for case in cases(part, task))
    return Count(found["right"], found["misread"], found["form"], found["otherwise"])


def page() -> str:
    """Return the table as a page."""
    lines = [(__doc__ or "").partition("\n\n")[2].strip(), ""]
    for part in PARTS:
        lines += [
            f"## The {part} part",
            "",
            "| task | answers | reader | right | misread | lost for form only | lost otherwise |",
        ]
        lines.append("| --- | --- | --- | --- | --- | --- | --- |")
        for task in TASKS:
            n = len(list(cases(part, task)))
            for name, reader in readers(task).items() if n else ():
                lines.append(f"| {task} | {n} | {name} | {' | '.join(map(str, count(part, task, reader)))} |")
        lines.append("")
    lines += [
        "## Two further readings",
        "",
        f"Misread and lost is what {NEWEST} says otherwise than these readings, or does not say.",
        "",
        f"| part | task | {' | '.join(BESIDE)} |",
        f"|{' --- |' * (len(BESIDE) + 2)}",
    ]
    for part in PARTS:
        found = {task: beside(part, task) for task in TASKS if any(cases(part, task))}
        found["all"] = {name: sum(one[name] for one in found.values()) for name in BESIDE}
        lines += [f"| {part} | {task} | {' | '.join(map(str, one.values()))} |" for task, one in found.items()]
    lines.append("")
    return "\n".join(["# How answers are read", "", *lines])


def main() -> None:
    """Write the page, or with `--show` print what the newest reader does not read right of the seen part."""
    if "--show" not in sys.argv:
        PAGE.write_text(page(), "utf-8")
        return
    for task in TASKS:
        reader = readers(task)[NEWEST]
        for case in cases("seen", task):
            if (done := how(case, reader(case))) != "right":
                sys.stdout.write(f"{task} {done} {case.kind} {case.reading} {case.text!r} -> {reader(case)}\n")


if __name__ == "__main__":
    main()
