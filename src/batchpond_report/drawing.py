"""Drawings of figures: SVG within the page, and SVG, PDF and PNG files for papers; one function per kind of chart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import orjson
import vl_convert

from batchpond import ids
from batchpond.errors import BatchpondError
from batchpond.lake import disk
from batchpond.results.export import translated
from batchpond_report import charts, looks, palette
from batchpond_report.looks import FONT, Layout, Spec
from batchpond_report.parts import ChartKind, Figure
from batchpond_report.reading import read, short

_DRAWN: Final = {
    ChartKind.INTERVALS: charts.intervals,
    ChartKind.RANKING: charts.intervals,
    ChartKind.BARS: charts.bars,
    ChartKind.WIN_MATRIX: charts.matrices,
    ChartKind.HEAT: charts.matrices,
    ChartKind.CURVES: charts.curves,
    ChartKind.TIMELINE: charts.timeline,
    ChartKind.CALIBRATION: charts.calibration,
}


def chart(figure: Figure, layout: Layout = Layout.WIDE) -> Spec:
    """Return a figure in Vega-Lite, 720 pixels wide, or 340 for a phone; wide matrices are as wide as need be.

    Its size is bounded whatever the frame holds (`reading.undrawn_rows` says what is not drawn), its texts are cut to
    one short line each, and it refers to nothing outside of itself.
    """
    reading = read(figure)
    if not reading.rows:
        nothing = looks.layer("text", {"text": looks.nominal("text")}, align="left")
        return looks.finished(looks.plot([{"text": "no rows"}], [nothing], (200, 20)))
    return looks.finished(_DRAWN[figure.kind](figure, reading, layout))


PNG_SCALE: Final = 2.0
_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_ALT_MAX: Final = 300
_DRAWINGS_MAX: Final = 400  # kept for the next report: of a dozen studies, a few MB
_SLACK_PX: Final = 60  # a drawing that is wider than its layout by more than this scrolls instead of shrinking
_KEY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")
# What Vega draws of these figures; anything else in a drawing is an error, and is never shown.
_ELEMENTS: Final = frozenset({"svg", "g", "path", "line", "rect", "text", "tspan"})
_KEPT: Final = frozenset(
    {
        "width", "height", "viewBox", "transform", "d", "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "fill", "stroke",
        "stroke-width", "stroke-dasharray", "stroke-miterlimit", "stroke-opacity", "fill-opacity", "opacity",
        "text-anchor", "font-size",
    }
)  # fmt: skip
_DROPPED: Final = frozenset({"class", "version", "font-family", "font-weight", "pointer-events", "display"})
_COLOUR: Final = re.compile(r"none|#[0-9a-f]{6}")
_LONG_NUMBER: Final = re.compile(r"-?\d+\.\d{3,}(e-?\d+)?")


def figure_html(figure: Figure) -> str:
    """Return a figure's drawing for a page: once for wide pages and print, once for phones; the style sheet shows one.

    A drawing wider than its page scrolls in a box of its own, which the keyboard reaches.
    """
    return "".join(_box(figure, layout) for layout in Layout)


def _box(figure: Figure, layout: Layout) -> str:
    drawn = svg(chart(figure, layout), figure)
    width = float(drawn.partition(' width="')[2].partition('"')[0])
    if width <= layout.width_px + _SLACK_PX:
        return f'<div class="chart chart-{layout}">{drawn}</div>'
    name = escape(short(f"{figure.title}, wider than the page", _ALT_MAX))
    scrolls = f'tabindex="0" role="group" aria-label="{name}"'
    return f'<div class="chart chart-{layout} chart-scrolls" {scrolls}>{drawn}</div>'


def svg(drawing: Spec, figure: Figure) -> str:
    """Return a chart as SVG for an HTML page: without ids, its colours the page's custom properties.

    Raises BatchpondError when the renderer drew what a page must not show.
    """
    root = _drawn(drawing, figure)
    for node in root.iter():
        for name in ("fill", "stroke"):
            if name in node.attrib:
                node.set(name, palette.page_colour(node.attrib[name]))
    root.set("role", "img")
    root.set("aria-label", short(figure.title, _ALT_MAX))
    return ElementTree.tostring(root, encoding="unicode")


def paper_svg(figure: Figure) -> str:
    """Return a figure as an SVG document of its own: light colours on white, with its title and caption as text."""
    root = _drawn(chart(figure), figure)
    size = {"width": root.attrib["width"], "height": root.attrib["height"], "fill": palette.PAPER.light}
    root.insert(0, ElementTree.Element("rect", size))
    for name, text in (("desc", figure.caption), ("title", figure.title)):
        told = ElementTree.Element(name)
        told.text = short(text, 2_000)
        root.insert(0, told)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def write_files(figures: Iterable[Figure], folder: Path) -> list[Path]:
    """Write KEY.svg, KEY.pdf and KEY.png (at twice the size) of each figure into a folder, each file whole or not.

    Returns the paths in that order. The bytes depend on the figure alone, but for a PDF that needs several fonts (names
    in other scripts): their order within the file may differ. Raises BatchpondError when a file cannot be written.
    """
    written = []
    for figure in figures:
        if not _KEY.fullmatch(figure.key):
            raise BatchpondError(f"a figure's key cannot be a file name: {figure.key!r}")
        text = paper_svg(figure)
        forms = {
            "svg": text.encode(),
            "pdf": vl_convert.svg_to_pdf(text),
            "png": vl_convert.svg_to_png(text, PNG_SCALE),
        }
        for form, data in forms.items():
            written.append(folder / f"{figure.key}.{form}")
            with translated(written[-1]):
                disk.make_directory(folder)
                with disk.placed(written[-1], force=True) as staged:
                    staged.write_bytes(data)
    return written


def _drawn(drawing: Spec, figure: Figure) -> ElementTree.Element:
    """Return a chart as SVG elements: only shapes and text, no ids, no classes, no reference, short numbers."""
    root = ElementTree.fromstring(_rendered(drawing))  # noqa: S314 - the renderer wrote it, with every text escaped
    _clean(root, figure)
    if (background := root[0]).tag == "rect" and "transform" not in background.attrib:
        root.remove(background)
    root.set("xmlns", _NAMESPACE)
    root.set("font-family", FONT)
    return root


def _rendered(drawing: Spec) -> str:
    """Return a chart as the renderer draws it, or drew it before: to start that takes as long as most queries."""
    told = orjson.dumps(drawing).decode()
    name = ids.digest("drawing", version("vl-convert-python"), told)
    kept, _, text = (disk.cached("drawing", name) or b"").decode("utf-8", "replace").partition("\n")
    if kept != ids.digest("drawn", text):  # nothing, or damaged
        text = vl_convert.vegalite_to_svg(told, allowed_base_urls=[])
        disk.cache("drawing", name, f"{ids.digest('drawn', text)}\n{text}".encode(), _DRAWINGS_MAX)
    return text


def _clean(node: ElementTree.Element, figure: Figure) -> None:
    node.tag = node.tag.removeprefix(f"{{{_NAMESPACE}}}")
    if node.tag not in _ELEMENTS:
        raise BatchpondError(f"figure {figure.key}: the renderer drew a <{node.tag}>, which a page must not show")
    for name, value in list(node.attrib.items()):
        if name in _DROPPED or name.startswith("aria-") or name == "role" or (name, value) == ("opacity", "1"):
            del node.attrib[name]
        elif name not in _KEPT or (name in {"fill", "stroke"} and not _COLOUR.fullmatch(value)):
            raise BatchpondError(f"figure {figure.key}: the renderer drew {name}={value!r}, which a page must not show")
        else:
            node.set(name, _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value))
    for child in list(node):
        if _is_invisible(child):
            node.remove(child)
        else:
            _clean(child, figure)
    _lift(node)


def _is_invisible(node: ElementTree.Element) -> bool:
    is_frame = node.tag.endswith("path") and node.get("class") in {"background", "foreground"}
    is_hidden = node.get("display") == "none" or node.get("opacity") == "0"
    is_empty = node.tag.endswith("text") and not "".join(node.itertext())
    return is_hidden or is_empty or (is_frame and "fill" not in node.attrib)


def _lift(node: ElementTree.Element) -> None:
    for place, child in reversed(list(enumerate(node))):
        if child.tag == "g" and not child.attrib:
            node.remove(child)
            for inner in reversed(list(child)):
                node.insert(place, inner)
