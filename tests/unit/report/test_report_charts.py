"""Figures of the report: what they draw, that names in them are inert, that their size is bounded, and their files."""

from __future__ import annotations

import itertools
import re
import struct
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import altair
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import BatchpondError
from batchpond_report import drawing, looks, palette, reading
from batchpond_report.drawing import chart
from batchpond_report.looks import Layout
from batchpond_report.parts import ChartKind, Figure
from batchpond_report.reading import MARKS_MAX, read, undrawn_rows
from tests.rigs.swept import examples

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "x" * 10_000, "a\x00b\x1b[31m\u202egnp.exe", "",
    "</style></svg><b>", "Z" + "\u0337\u0321\u0328" * 30, "שלום", "漢字" * 500, "a\r\nb\tc", "\ufffe\u2028end",
    "javascript:alert(1)", "url(http://127.0.0.1/x)", "👩‍👩‍👧‍👦" * 40,
)  # fmt: skip
START = datetime(2026, 11, 20, 9, 30)  # noqa: DTZ001 - DuckDB gives UTC without a zone
PAPER = palette.page_colour(palette.PAPER.light)
Rows = list[dict[str, Any]]

each_kind = pytest.mark.parametrize("kind", ChartKind)


def rows_of(kind: ChartKind, names: tuple[str, ...]) -> Rows:
    """Return a row or more per name, in every role that takes text."""
    values = [(n + 1) / (len(names) + 1) for n in range(len(names))]
    spread = [{"value": v, "low": v - 0.04, "high": v + 0.03} for v in values]
    match kind:
        case ChartKind.INTERVALS:
            return [{"panel": names[0], "label": a, "group": names[n % 3], "reference": 0.5, "n": n, **spread[n]}
                    for n, a in enumerate(names)]  # fmt: skip
        case ChartKind.RANKING:
            return [{"label": a, "group": str(n // 2), **spread[n]} for n, a in enumerate(names)]
        case ChartKind.WIN_MATRIX | ChartKind.HEAT:
            return [{"row": a, "column": b, "value": values[n], "n": 40 + n}
                    for n, a in enumerate(names) for b in names if a != b]  # fmt: skip
        case ChartKind.BARS:
            return [{"label": a, "group": names[n % 3], "value": 10.0 + n} for n, a in enumerate(names)]
        case ChartKind.TIMELINE:
            return [{"x": START + timedelta(hours=n), "value": float(n), "group": names[n % 2]}
                    for n in range(len(names))]  # fmt: skip
        case ChartKind.CURVES | ChartKind.CALIBRATION:
            return [{"panel": names[0], "x": values[n], "group": names[n % 3], "n": n, **spread[n]}
                    for n in range(len(names))]  # fmt: skip


def figure_of(kind: ChartKind, rows: Rows, **fields: Any) -> Figure:
    """Return a figure whose columns are named like the roles they play."""
    frame = pl.DataFrame(rows, infer_schema_length=None)
    said = {"key": "a-figure", "title": "A title", "caption": "What is shown; n = 12.", "sql": "select 1"}
    titles = {"value": "Share, %", "x": "Turn"}
    return Figure(**{**said, "frame": frame, "kind": kind, "encoding": {name: name for name in frame.columns},
                     "titles": titles, **fields})  # fmt: skip


def parsed(text: str) -> ElementTree.Element:
    """Return the root of our own drawing."""
    return ElementTree.fromstring(text)  # noqa: S314


def drawn(figure: Figure, layout: Layout = Layout.WIDE) -> ElementTree.Element:
    """Return a figure's drawing as a page gets it, parsed."""
    return parsed(drawing.svg(chart(figure, layout), figure).replace(" xmlns=", " data-xmlns="))


def dots(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Return the places of the data's dots, which alone have an edge in the colour of the page; not the legend's."""
    plots = [node for node in root.iter() if node.tag == "path" and node.get("stroke") == PAPER]
    places = [re.fullmatch(r"translate\(([-\d.]+),([-\d.]+)\)", node.get("transform", "")) for node in plots]
    return [(float(place[1]), float(place[2])) for place in places if place]


def placed_texts(root: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """Return each level text of a drawing with about the box it covers: left, top, right, bottom."""
    found = []

    def walk(node: ElementTree.Element, x: float, y: float) -> None:
        transform = node.get("transform", "")
        if move := re.match(r"translate\(([-\d.]+),([-\d.]+)\)", transform):
            x, y = x + float(move[1]), y + float(move[2])
        size = float(node.get("font-size", "0px").removesuffix("px"))
        for line in node.findall("tspan") or [node] * (node.tag == "text" and "rotate" not in transform):
            text = "".join(line.itertext())
            width = 0.46 * size * len(text)
            left = x - {"start": 0, "middle": width / 2, "end": width}[node.get("text-anchor", "start")]
            below = y + float(line.get("dy", 0))
            found.append((text, left, below - 0.7 * size, left + width, below))
            y = below
        for child in node:
            walk(child, x, y)

    walk(root, 0, 0)
    return found


def written(root: ElementTree.Element) -> list[str]:
    """Return the texts of a drawing."""
    return ["".join(node.itertext()) for node in root.iter("text")]


@each_kind
def test_hostile_names_are_inert(kind: ChartKind) -> None:
    """Whatever names hold, a drawing has shapes and one-line texts: no markup, script, reference, id or control."""
    titles = {"value": HOSTILE[0], "x": HOSTILE[3], "reference": HOSTILE[1], "row": HOSTILE[2], "column": HOSTILE[5]}
    figure = figure_of(kind, rows_of(kind, HOSTILE), title=HOSTILE[0], caption=HOSTILE[1], titles=titles)
    for layout in Layout:
        root = drawn(figure, layout)
        assert {node.tag for node in root.iter()} <= {"svg", "g", "path", "line", "rect", "text", "tspan"}
        names = {name for node in root.iter() for name in node.attrib}
        assert not any(name.startswith("on") or "href" in name or name in {"id", "style", "class"} for name in names)
        values = [value for node in root.iter() for name, value in node.attrib.items() if name != "aria-label"]
        assert not any("url(" in value or "script" in value for value in values)
        for text in [*written(root), root.attrib["aria-label"]]:
            assert len(text) <= 300
            assert not any(unicodedata.category(c) in {"Cc", "Cs", "Cn"} or c in "\u202e\u2028" for c in text)
        assert max(len(text) for text in written(root)) <= 125


def data_of(spec: dict[str, Any]) -> set[str]:
    """Return how a chart and its parts come by their rows."""
    found = set(spec.get("data", ()))
    return found.union(*(data_of(part) for name in ("concat", "layer") for part in spec.get(name, ())))


@each_kind
def test_drawings_are_the_same_each_time_and_valid(kind: ChartKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figure gives the same bytes; its chart is what Vega-Lite's schema allows, and holds its own data."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    figure = figure_of(kind, rows_of(kind, ("b", "a", "c")))
    first, second = (drawing.svg(chart(figure), figure) for _ in range(2))
    assert first == second
    for layout in Layout:
        spec = chart(figure, layout)
        altair.Chart.from_dict(spec, validate=True)
        assert data_of(spec) == {"values"}
    assert 'role="img"' in first
    assert 'aria-label="A title"' in first


def test_a_drawing_is_kept_for_the_next_report_and_a_damaged_one_is_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept file is what is shown, as long as it is what was drawn; each chart has its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    figure = figure_of(ChartKind.BARS, rows_of(ChartKind.BARS, ("b", "a")))
    drawn = drawing.svg(chart(figure), figure)
    (file,) = (tmp_path / "batchpond").iterdir()
    made = file.read_bytes()
    with monkeypatch.context() as without:
        without.setattr(drawing, "vl_convert", SimpleNamespace())
        assert drawing.svg(chart(figure), figure) == drawn
    for damage in (b"", made[:-20], made.replace(b"</svg>", b"</svg "), b"\xff" * 9):
        file.write_bytes(damage)
        assert drawing.svg(chart(figure), figure) == drawn
        assert file.read_bytes() == made
    drawing.svg(chart(figure, Layout.NARROW), figure)
    assert len([*(tmp_path / "batchpond").iterdir()]) == 2


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("kind", [ChartKind.INTERVALS, ChartKind.RANKING, ChartKind.CURVES, ChartKind.CALIBRATION])
def test_every_row_is_a_dot_in_its_place(kind: ChartKind, layout: Layout) -> None:
    """There is one dot per row, and it stands where its value is on the axis."""
    rows = [{"label": f"item {n}", "x": n / 10, "value": value, "low": value - 0.1, "high": value + 0.1}
            for n, value in enumerate([0.2, 0.9, 0.4, 0.65, 0.3])]  # fmt: skip
    placed = dots(drawn(figure_of(kind, rows, is_share=True), layout))
    assert len(placed) == len(rows)
    along = [x if kind in {ChartKind.INTERVALS, ChartKind.RANKING} else -y for x, y in placed]
    scale = (along[1] - along[0]) / (0.9 - 0.2)
    assert scale > 100
    assert along == pytest.approx([along[0] + scale * (row["value"] - 0.2) for row in rows], abs=0.02)


@pytest.mark.parametrize("layout", Layout)
def test_differences_of_shares_are_drawn_where_they_are(layout: Layout) -> None:
    """Below 0, and beyond 1, too: neither a dot nor an end of its interval is moved to the edge of the axis."""
    rows = [{"label": f"item {n}", "value": value, "low": value - 0.1, "high": value + 0.1, "reference": 0.0}
            for n, value in enumerate([-0.3, 0.2, -0.1, 0.0])]  # fmt: skip
    figure = figure_of(ChartKind.INTERVALS, rows, is_share=True)
    along = [x for x, _ in dots(drawn(figure, layout))]
    scale = (along[1] - along[0]) / 0.5
    assert along == pytest.approx([along[0] + scale * (row["value"] + 0.3) for row in rows], abs=0.02)
    low, high = looks.ends(figure, [-0.02, 0.4, 1.03])
    assert low <= -0.02
    assert high >= 1.03
    assert looks.ends(figure, [0.0, 0.4, 1.0]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "is_share", "expected"),
    [([1.0], False, (0, 1)), ([0.2, 1.0], False, (0, 1)), ([-0.3, 0.9], False, (-1, 1)), ([], False, (0, 1)),
     ([0.98, 1.0], True, (0, 1)), ([-0.98, 0.5], True, (-1, 0.5)), ([-0.9], True, (-1, -0.4))],
)  # fmt: skip
def test_an_axis_of_shares_or_of_kappa_ends_where_they_do(
    values: list[float], is_share: bool, expected: tuple[float, float]
) -> None:
    """Judges that agree wholly are at the end of the axis, and none is drawn beyond it; other numbers have no ends."""
    rows = [{"label": f"{n}", "value": value, "low": value, "high": value} for n, value in enumerate(values)]
    bounded = figure_of(ChartKind.INTERVALS, rows, is_share=is_share, is_bounded=not is_share)
    assert looks.ends(bounded, values) == pytest.approx(expected)
    free = figure_of(ChartKind.INTERVALS, rows)
    low, high = looks.ends(free, [1.0])
    assert low < 1 < high


def test_cells_and_bars_are_drawn_each() -> None:
    """A matrix has a cell per row with its number, and stacked bars have a part per row and a sum per label."""
    names = ("gpt", "claude", "llama")
    matrix = rows_of(ChartKind.WIN_MATRIX, names)
    matrix[0]["value"] = None
    root = drawn(figure_of(ChartKind.WIN_MATRIX, matrix))
    assert sum(node.get("stroke") == PAPER for node in root.iter("path")) == len(matrix)
    texts = written(root)
    assert [texts.count(name) for name in names] == [2, 2, 2]
    assert texts.count("\u2013") == 1
    assert texts.count("50") == 2
    assert texts.count("75") == 2
    parts = [
        {"label": name, "group": group, "value": value}
        for name in names
        for group, value in (("won", 70), ("lost", 30))
    ]
    root = drawn(figure_of(ChartKind.BARS, parts))
    colours = [node.get("fill") for node in root.iter("path") if node.get("stroke") == PAPER]
    for tone in palette.SERIES[:2]:
        assert colours.count(palette.page_colour(tone.light)) == len(names) + 1  # and one in the legend
    assert written(root).count("100") == len(names) + 1  # and one on the axis


@pytest.mark.parametrize("layout", Layout)
@each_kind
def test_texts_lie_within_the_drawing_and_none_covers_another(kind: ChartKind, layout: Layout) -> None:
    """Names, numbers, legend and axes stay on the drawing and apart, whether names are short or long."""
    for names in (("gpt", "claude", "llama"), tuple(f"step_by_step · claude-haiku-4-5 · no {n}" for n in range(5))):
        rows = [row for row in rows_of(kind, names) if kind is not ChartKind.INTERVALS or row["group"] == names[0]]
        root = drawn(figure_of(kind, rows, is_share=kind is not ChartKind.BARS), layout)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        texts = placed_texts(root)
        assert len(texts) >= len(names)
        for text, left, top, right, bottom in texts:
            assert -2 <= left < right <= width + 2, text
            assert -2 <= top < bottom <= height + 2, text
        for one, other in itertools.combinations(texts, 2):
            is_apart = one[1] >= other[3] or other[1] >= one[3] or one[2] >= other[4] or other[2] >= one[4]
            assert is_apart, (one, other)


@pytest.mark.parametrize("kind", [ChartKind.INTERVALS, ChartKind.CURVES, ChartKind.TIMELINE, ChartKind.BARS])
def test_the_legend_names_each_group_once_in_its_colour(kind: ChartKind) -> None:
    """Groups keep the order of their first row, or are named in order, each of a colour of its own in all places."""
    names = ("zeta", "alpha")
    rows = [{"label": "a", "panel": "p", "x": START + timedelta(hours=n) if kind is ChartKind.TIMELINE else n,
             "group": name, "value": 0.5, "low": 0.4, "high": 0.6} for name in names for n in range(2)]  # fmt: skip
    if kind is ChartKind.BARS:
        rows = [{name: row[name] for name in ("label", "group", "value")} for row in rows[::2]]
    root = drawn(figure_of(kind, rows))
    texts = written(root)
    wanted = sorted(names) if kind is ChartKind.INTERVALS else list(names)
    assert [text for text in texts if text in names] == wanted
    fills = [node.get("fill") for node in root.iter("path")]
    for tone in palette.SERIES[:2]:
        assert fills.count(palette.page_colour(tone.light)) >= 2
    assert palette.page_colour(palette.SERIES[2].light) not in fills


def test_a_judge_has_one_colour_wherever_the_same_judges_are_compared() -> None:
    """Whichever of them leads a table; the parts of a bar stay in the order that they are stacked in."""
    rows = [{"label": "a", "group": name, "value": 0.5, "low": 0.4, "high": 0.6} for name in ("late", "early", "mid")]
    groups = [read(figure_of(ChartKind.INTERVALS, some)).groups for some in (rows, rows[::-1])]
    assert groups == [["early", "late", "mid"]] * 2
    assert read(figure_of(ChartKind.BARS, rows)).groups == ["late", "early", "mid"]


def test_names_that_look_alike_stay_apart() -> None:
    """Two names that are the same once they are cut or cleaned are two rows, and say so."""
    rows = [
        {"label": name, "value": 0.5, "low": 0.4, "high": 0.6} for name in ("a\x00b", "a\x01b", "x" * 300, "x" * 301)
    ]
    root = drawn(figure_of(ChartKind.INTERVALS, rows))
    assert len({y for _, y in dots(root)}) == 4
    assert {"a\ufffdb", "a\ufffdb (2)"} <= set(written(root))


def test_what_cannot_be_drawn_is_left_open() -> None:
    """NULL, NaN and infinity have no dot; one missing end is an arrow; the numbers say so."""
    rows = [
        {"label": "whole", "value": 0.5, "low": 0.4, "high": 0.6},
        {"label": "open", "value": 0.7, "low": 0.3, "high": None},
        {"label": "null", "value": None, "low": None, "high": None},
        {"label": "nan", "value": float("nan"), "low": float("nan"), "high": float("inf")},
    ]
    for kind in (ChartKind.INTERVALS, ChartKind.RANKING):
        root = drawn(figure_of(kind, rows, is_share=True))
        assert len(dots(root)) == 2
        assert written(root).count("no value") == 2
        assert "70.0% [30.0, ∞]" in written(root)
        assert "50.0% [40.0, 60.0]" in written(root)
        assert any("rotate(90)" in node.get("transform", "") for node in root.iter("path"))
    empty = figure_of(ChartKind.INTERVALS, rows)
    assert "no rows" in written(drawn(figure_of(ChartKind.INTERVALS, rows, frame=empty.frame.clear())))


def test_drawings_are_bounded_and_say_what_is_left_out() -> None:
    """Rows, panels, groups and sides beyond the bounds are counted, not drawn; many groups of intervals are kept."""
    many = [{"label": f"item {n}", "value": 0.5, "low": 0.4, "high": 0.6} for n in range(5_000)]
    figure = figure_of(ChartKind.RANKING, many)
    assert undrawn_rows(figure) == 5_000 - MARKS_MAX
    assert len(dots(drawn(figure))) == MARKS_MAX
    names = tuple(f"name {n}" for n in range(50))
    matrix = figure_of(ChartKind.WIN_MATRIX, rows_of(ChartKind.WIN_MATRIX, names))
    assert undrawn_rows(matrix) == 50 * 49 - 40 * 39
    grouped = [{"label": "a", "x": n, "group": f"g{n}", "panel": "p", "value": 0.5, "low": 0.4, "high": 0.6}
               for n in range(20)]  # fmt: skip
    assert undrawn_rows(figure_of(ChartKind.CURVES, grouped)) == 14
    folded = read(figure_of(ChartKind.INTERVALS, grouped))
    assert folded.n_undrawn == 0
    assert [row["label"] for row in folded.rows][:2] == ["a · g0", "a · g1"]
    panels = [{"label": "a", "panel": f"p{n}", "value": 0.5, "low": 0.4, "high": 0.6} for n in range(30)]
    assert undrawn_rows(figure_of(ChartKind.INTERVALS, panels)) == 18


def test_a_wide_matrix_scrolls_in_a_box_that_the_keyboard_reaches() -> None:
    """Both layouts are in the page's markup; only a drawing wider than its page gets a focusable box with a name."""
    narrow = drawing.figure_html(figure_of(ChartKind.HEAT, rows_of(ChartKind.HEAT, ("a", "b"))))
    assert [narrow.count(f"chart-{layout}") for layout in Layout] == [1, 1]
    assert "tabindex" not in narrow
    rows = rows_of(ChartKind.HEAT, tuple(f"name {n:02}" for n in range(24)))
    assert (
        drawing.figure_html(figure_of(ChartKind.HEAT, rows)).count('tabindex="0" role="group" aria-label="A title') == 1
    )


def test_files_are_what_their_names_say(tmp_path: Path) -> None:
    """SVG, PDF and PNG of each figure; the PNG is twice as large; colours are fixed; a second run gives equal bytes."""
    kinds = (ChartKind.INTERVALS, ChartKind.WIN_MATRIX, ChartKind.CURVES, ChartKind.BARS)
    figures = [figure_of(kind, rows_of(kind, ("a", "b", "c")), key=kind.value) for kind in kinds]
    paths = drawing.write_files(figures, tmp_path / "new" / "figures")
    assert [path.name for path in paths[:3]] == ["intervals.svg", "intervals.pdf", "intervals.png"]
    before = {path: path.read_bytes() for path in paths}
    assert sorted(before) == sorted((tmp_path / "new" / "figures").iterdir())
    for svg, pdf, png in zip(*[iter(paths)] * 3, strict=True):
        text = svg.read_text()
        assert "var(" not in text
        root = parsed(text)
        assert root[0].text == "A title"
        width, height = (float(root.attrib[side]) for side in ("width", "height"))
        assert before[png].startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", before[png][16:24]) == pytest.approx((2 * width, 2 * height), abs=2)
        assert before[pdf].startswith(b"%PDF-")
        assert before[pdf].rstrip().endswith(b"%%EOF")
        assert f"/MediaBox [0 0 {width:g} {height:g}]".encode() in before[pdf]
    again = drawing.write_files(figures[:2], tmp_path / "new" / "figures")
    assert {path: path.read_bytes() for path in again} == {path: before[path] for path in again}


def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    """A folder that is a file, and a key that is no file name, leave nothing behind."""
    figure = figure_of(ChartKind.HEAT, rows_of(ChartKind.HEAT, ("a", "b")))
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    with pytest.raises(BatchpondError, match="blocked") as caught:
        drawing.write_files([figure], blocked)
    assert caught.value.hint
    with pytest.raises(BatchpondError, match="file name"):
        drawing.write_files([figure_of(ChartKind.HEAT, rows_of(ChartKind.HEAT, ("a", "b")), key="../up")], tmp_path)
    (tmp_path / "a-figure.svg").mkdir()
    with pytest.raises(BatchpondError, match=r"a-figure\.svg"):
        drawing.write_files([figure], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-figure.svg", "blocked"]


def luminance(colour: str) -> float:
    """Return WCAG's relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast ratio of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def schemes() -> Iterator[Callable[[palette.Tone], str]]:
    """Yield what gives a tone's colour on light pages, then on dark ones."""
    yield lambda tone: tone.light
    yield lambda tone: tone.dark


def test_colours_can_be_told_from_their_background() -> None:
    """Marks have a contrast of 3:1 and texts 4.5:1 on light pages and dark ones; each light value names one role."""
    assert len({tone.light for tone in palette.TONES}) == len(palette.TONES)
    for colour in schemes():
        for mark in (*palette.SERIES, palette.REFERENCE):
            assert contrast(colour(mark), colour(palette.PAPER)) >= 3, mark.name
        for text in (palette.INK, palette.MUTED):
            for ground in (palette.PAPER, palette.BAND):
                assert contrast(colour(text), colour(ground)) >= 4.5, text.name
        for cell in (*palette.DIVERGING, *palette.SEQUENTIAL, palette.NO_VALUE):
            assert contrast(colour(palette.ink_on(cell)), colour(cell)) >= 4.5, cell.name
        for part in palette.SERIES:
            assert contrast(colour(palette.CELL_INK_STRONG), colour(part)) >= 4.5, part.name


@given(st.text(max_size=80), st.integers(min_value=9, max_value=40))
@settings(max_examples=examples(150), deadline=None)
def test_short_texts_fit_and_are_one_harmless_line(text: str, size: int) -> None:
    """A shortened text fits its size, is stable, can stand in XML, and has no control of lines or direction."""
    short = reading.short(text, size)
    assert len(short) <= size
    assert short
    assert reading.short(short, size) == short
    element = ElementTree.Element("text")
    element.text = short
    assert parsed(ElementTree.tostring(element, encoding="unicode")).text == short
    assert not any(unicodedata.category(c) in {"Cc", "Zl", "Zp"} or "\u202a" <= c <= "\u202e" for c in short)
