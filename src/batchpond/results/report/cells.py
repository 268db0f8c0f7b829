"""How the cells of a table are called: by what tells them apart, and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from batchpond.results.report.parts import FIGURE_ROWS_MAX, PANELS_MAX, Column, text

JUDGE: Final = "judge"
LABEL: Final = "label"
GROUP: Final = "group"
PANEL: Final = "panel"
JUDGED_BY: Final = ("template_id", "provider", "request_model", "thinking")
GROUPS_MAX: Final = 6
TITLES: Final = {
    "template_id": "template", "rubric_id": "rubric", "thinking": "thinking", JUDGE: "judge",
    "candidate": "candidate", "task": "task", "category": "kind of pressure", "turn_no": "turn",
}  # fmt: skip
_NOTHING: Final = ("", "unspecified")


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows with a `judge` column beside provider and model, and the dimensions that vary among them."""

    frame: pl.DataFrame
    varying: Sequence[str]
    constant: Mapping[str, str] = field(default_factory=dict)

    def columns(self, titles: Mapping[str, str]) -> list[Column]:
        """Return the dimensions that vary as columns of a table; the judge alone where nothing does."""
        return [text(name, titles.get(name) or TITLES.get(name, name)) for name in self.varying]

    @property
    def are_several(self) -> bool:
        """Whether rows differ in any dimension."""
        return any(self.frame[name].n_unique() > 1 for name in self.varying)

    def said(self) -> str:
        """Return a sentence with the dimensions that are the same in all rows, or nothing."""
        known = [f"{TITLES.get(name, name)} {value}" for name, value in self.constant.items()]
        return f"All rows: {', '.join(known)}." if known else ""

    def labelled(self, *, group: str | None = None, panel: str | None = None) -> tuple[pl.DataFrame, dict[str, str]]:
        """Return the rows with label, group and panel columns for a figure, and the encoding of these roles.

        `group` and `panel` name dimensions that are told apart by colour and by small drawings where there are
        few of them; what is left names a line.
        """
        encoding = {"label": LABEL}
        left = list(self.varying)
        frame = self.frame.head(FIGURE_ROWS_MAX)
        made: list[pl.Expr] = []
        if panel in left and len(left) > 1 and frame[panel].n_unique() <= PANELS_MAX:
            encoding["panel"] = PANEL
            left.remove(panel)
            made.append(pl.col(panel).cast(pl.String).alias(PANEL))
        if group in left and len(left) > 1 and frame[group].n_unique() <= GROUPS_MAX:
            encoding["group"] = GROUP
            left.remove(group)
            made.append(pl.col(group).cast(pl.String).alias(GROUP))
        made.append(pl.concat_str([pl.col(name).cast(pl.String) for name in left], separator=" · ").alias(LABEL))
        return frame.with_columns(*made), encoding


def cells(frame: pl.DataFrame, dimensions: Sequence[str], *, has_one: bool = True) -> Cells:
    """Find what tells rows apart: judges by model, with the provider only where one model has several.

    `has_one`: where nothing differs, the judge (or the first dimension) tells them apart nevertheless.
    """
    names = [name for name in dimensions if name in frame.columns]
    if {"provider", "request_model"} <= set(names):
        frame = frame.with_columns(_judge(frame).alias(JUDGE))
        names = [JUDGE if name == "request_model" else name for name in names if name != "provider"]
    varying = [name for name in names if frame[name].n_unique() > 1]
    if len(varying) > 1 and "thinking" in varying:
        rest = [name for name in varying if name != "thinking"]
        if frame.select(rest).n_unique() == frame.select(varying).n_unique():
            varying = rest
    same = {name: frame[name][0] for name in names if len(frame) and frame[name].n_unique() == 1}
    constant = {name: str(value) for name, value in same.items() if value not in (None, *_NOTHING)}
    if not varying and names and has_one:
        varying = [JUDGE if JUDGE in names else names[0]]
        constant.pop(varying[0], None)
    return Cells(frame, varying, constant)


def _judge(frame: pl.DataFrame) -> pl.Expr:
    pairs = frame.select("provider", "request_model").unique()
    both = pl.concat_str(["provider", "request_model"], separator="/")
    return both if pairs["request_model"].n_unique() < len(pairs) else pl.col("request_model")
