"""Lakes for tests of the report: one study with every task, one whose names and answers attack whoever shows them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from batchpond.lake.schemas import ITEMS
from tests.rigs.lakes import LakeBuilder

Row = dict[str, Any]
ATTACK = (
    "</pre></td><script>alert(1)</script><img src=https://evil.example/x onerror=alert(1)>\u202egnp.\x1b[31m`|\n```"
)
ITEM = "<svg/onload=alert(1)>{}\u202e'\";--"
MODELS = ("alpha", "beta", "gamma")
JUDGES = (("openai", "m1"), ("anthropic", "m2"))


def pairs() -> list[Row]:
    """Return judgments of pairs of models' outputs by two judges, each in both orders and twice, some by people."""
    rows: list[Row] = []
    outputs = [(unit, model) for unit in ("q1", "q2", "q3") for model in MODELS]
    for provider, judge in (*JUDGES, ("human", "people")):
        for unit, first in outputs[: 3 if provider == "human" else None]:
            for second in MODELS:
                rows += [
                    {"template_id": "t1", "rubric_id": "be_kind", "provider": provider, "request_model": judge,
                     "thinking": "none", "unit_id": unit, "item_first": f"{unit}-{first}",
                     "item_second": f"{unit}-{second}", "candidate_first": first, "candidate_second": second,
                     "repeat_no": repeat, "outcome": "decided", "cost_usd": 0.001, "output_tokens": 7,
                     "verdict": "first" if first < second or (judge == "m2" and unit == "q3") else "second"}
                    for repeat in (1, 2) if first != second
                ]  # fmt: skip
    return rows


def singles() -> list[Row]:
    """Return compliance, ratings and pressure labels by two judges, and people's word on compliance."""
    rows: list[Row] = []
    for number, (provider, judge) in enumerate((*JUDGES, ("human", "people"))):
        base = {"template_id": "t1", "provider": provider, "request_model": judge, "thinking": "none"}
        for unit in range(12):
            for candidate in ("alpha", "beta"):
                item = {**base, "unit_id": f"u{unit}", "item_first": f"u{unit}-{candidate}",
                        "candidate_first": candidate, "outcome": "decided"}  # fmt: skip
                is_kind = (unit + number) % 4 > 0 or candidate == "alpha"
                rows.append({**item, "task": "compliance", "rubric_id": f"s{unit % 6}",
                             "verdict": "true" if is_kind else "false", "confidence": 0.55 + unit / 30})  # fmt: skip
                rows.append({**item, "task": "likert", "rubric_id": "clarity", "score": 1 + (unit + number) % 5})
        labels = ("no_flip", "soft_flip", "explicit_flip")
        rows += [
            {**base, "task": "pressure", "rubric_id": "praise", "unit_id": f"u{unit}", "candidate_first": "alpha",
             "item_first": f"u{unit}-{turn}", "turn_no": turn, "label": labels[turn * (unit % 2)], "outcome": "decided"}
            for unit in range(6) for turn in range(3) if provider != "human"
        ]  # fmt: skip
    return rows


def build(path: Path) -> Path:
    """Write both studies: `every` (imported, all tasks), and `hostile` (planned, pairs alone)."""
    lake = LakeBuilder(path)
    rows = [{"study": "every", "import_key": f"k{n}", **row} for n, row in enumerate(pairs() + singles())]
    lake.imported(rows)
    names = [ITEM.format(letter) for letter in "abc"]
    texts = {name: ATTACK for name in names} | {
        f"q{unit}-{model}": f"{model} on {unit} " * (unit + len(model)) for unit in (1, 2, 3) for model in MODELS
    }
    lake.rows(ITEMS, [{"item_hash": f"h{name}", "item_id": name, "text": text} for name, text in texts.items()])
    planned, lines = [], []
    for slot, (first, second) in enumerate((a, b) for a in names for b in names if a != b):
        planned.append(
            {"slot": slot, "request_id": f"r{slot}", "item_first": first, "item_second": second,
             "item_first_hash": f"h{first}", "item_second_hash": f"h{second}", "pair_id": "p",
             "direction": "forward" if first < second else "reverse", "is_lo_first": first < second,
             "template_id": "<u>t</u>", "rubric_id": "javascript:alert(1)", "request_model": "m<1>"}
        )  # fmt: skip
        lines.append({"request_id": f"r{slot}", "outcome": "decided", "verdict": "first", "text": ATTACK,
                      "cost_usd": 0.01})  # fmt: skip
    lines[-1] = {"request_id": f"r{len(lines) - 1}", "status": "errored", "outcome": "error",
                 "error_class": "transient", "error_code": "<500>", "error_message": ATTACK}  # fmt: skip
    lake.plan(planned, study="hostile")
    lake.sent("A1", "S1", [line["request_id"] for line in lines], study="hostile", request_model="m<1>")
    lake.lines("A1", lines)
    lake.ended("A1")
    lake.build()
    return path


class Page(HTMLParser):
    """A page as a browser's parser sees it: every element with its attributes, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]
