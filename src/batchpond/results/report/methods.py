"""The methods of a report: its claims, and each estimator that it used, in the words of the views' own headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

from batchpond.results.report.markdown import plain, section
from batchpond.results.report.parts import Report
from batchpond.views import refresh


def render(report: Report) -> str:
    """Return them as Markdown: what was claimed and when, then metrics, and then what these are made of."""
    claims = [one for one in report.sections if one.key == "claims"]
    lines = [f"# {plain(report.study)}: methods\n", *(line for one in claims for line in section(one, count(1)))]
    words = {word for exhibit in report.exhibits() for word in re.findall(r"\w+", exhibit.sql)}
    words -= set() if claims else {"report_claims"}
    used = _used(words)
    lines += [part for script in used if script.views for part in _script(script, words)]
    for exhibit in report.exhibits():
        if not exhibit.sql:
            lines.append(f"## {plain(exhibit.title)}\n\n{plain(exhibit.caption)}\n\n    {exhibit.command}\n")
    lines += [part for script in used if script.macros for part in _script(script, {*script.macros})]
    return "\n".join([*lines, f"Fingerprint of the facts: {report.fingerprint}."]) + "\n"


def _used(words: set[str]) -> list[refresh.Script]:
    """Return the files of the views that are named, and of all that these read."""
    definer = {name: script for script in refresh.scripts() for name in (*script.views, *script.macros)}
    found = refresh.reached(words, definer.get)
    return [script for script in refresh.scripts() if script.name in found and "estimators" in script.header]


def _script(script: refresh.Script, words: set[str]) -> Iterator[str]:
    """Yield what a file's header says of itself; of its estimators those that stand in the report."""
    yield f"## {script.name}\n\n{script.header['question']}\n"
    lines = script.header["estimators"].splitlines()
    yield from (line for line in lines if words & set(re.findall(r"\w+", line.partition(":")[0])))
    yield ""
    said = (key for key in ("source", "reference", "note") if key in script.header)
    yield from (f"{key.title()}: {script.header[key]}\n" for key in said)
