"""The colours of the figures: each a role with one value for light pages and paper, and one for dark pages.

Every light value is its own, so a drawn figure's colours name their roles: the page replaces them by CSS custom
properties (`page_colour`), and one drawing serves light, dark and print. Series follow Okabe and Ito 2008 ("Color
universal design"), darkened until each has a contrast of at least 3:1 against its background (WCAG 2.2, 1.4.11); text
and the numbers in cells have at least 4.5:1 (1.4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Tone:
    """A colour by its role: hexadecimal values for light and for dark pages."""

    name: str
    light: str
    dark: str


INK: Final = Tone("ink", "#1a1a1a", "#ececec")
MUTED: Final = Tone("muted", "#5c5c5c", "#a9afb8")
GRID: Final = Tone("grid", "#e4e4e4", "#353a42")
AXIS: Final = Tone("axis", "#8a8a8a", "#7f868f")
REFERENCE: Final = Tone("reference", "#6b6b6b", "#9aa1ab")
BAND: Final = Tone("band", "#f3f3f3", "#23272e")
PAPER: Final = Tone("paper", "#ffffff", "#16181d")

SERIES: Final = (
    Tone("series-1", "#0072b2", "#56b4e9"),
    Tone("series-2", "#c44e00", "#ff8a4c"),
    Tone("series-3", "#00805e", "#2cc295"),
    Tone("series-4", "#a4508b", "#e39bc6"),
    Tone("series-5", "#8f6a00", "#e6b422"),
    Tone("series-6", "#5a5ac8", "#a9a9ff"),
)
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")

# The numbers in cells: one ink for the steps near the middle (or the pale end), one for those at the ends.
CELL_INK: Final = Tone("cell-ink", "#161616", "#f5f5f5")
CELL_INK_STRONG: Final = Tone("cell-ink-strong", "#fefefe", "#0c0c0c")
NO_VALUE: Final = Tone("no-value", "#eeeeec", "#1f2228")

_DIVERGING: Final = (
    ("#9a3b00", "#ffb48a"),
    ("#b85213", "#f08a50"),
    ("#e8a06c", "#a85a2c"),
    ("#f6d3b8", "#5e3a26"),
    ("#f4f4f2", "#2b2e34"),
    ("#c4dcec", "#24465c"),
    ("#86b8da", "#2a6a94"),
    ("#2a78ad", "#5fb2e6"),
    ("#0b4f80", "#a3d4f5"),
)
_SEQUENTIAL: Final = (
    ("#f1f5f8", "#262a30"),
    ("#d3e4ef", "#24405a"),
    ("#a9cde3", "#265a80"),
    ("#6ea9cf", "#2f74a3"),
    ("#2b79ae", "#6fb9e8"),
    ("#0c5081", "#a0d2f2"),
    ("#083a5e", "#cfe9fb"),
)
DIVERGING: Final = tuple(Tone(f"diverging-{i}", *pair) for i, pair in enumerate(_DIVERGING, 1))
SEQUENTIAL: Final = tuple(Tone(f"sequential-{i}", *pair) for i, pair in enumerate(_SEQUENTIAL, 1))
_STRONG: Final = frozenset((*DIVERGING[:2], *DIVERGING[-2:], *SEQUENTIAL[-3:]))

TONES: Final = (
    INK, MUTED, GRID, AXIS, REFERENCE, BAND, PAPER, *SERIES, CELL_INK, CELL_INK_STRONG, NO_VALUE, *DIVERGING,
    *SEQUENTIAL,
)  # fmt: skip
_BY_LIGHT: Final = {tone.light: tone for tone in TONES}


def step(tones: tuple[Tone, ...], share: float) -> Tone:
    """Return the tone for a share of the way, 0 to 1, through equally wide steps."""
    return tones[min(max(int(share * len(tones)), 0), len(tones) - 1)]


def ink_on(tone: Tone) -> Tone:
    """Return the ink that can be read on a cell of this tone, on light pages and on dark ones."""
    return CELL_INK_STRONG if tone in _STRONG else CELL_INK


def page_colour(light: str) -> str:
    """Return the CSS value for a drawn colour: its custom property, or the colour itself where it has no role."""
    tone = _BY_LIGHT.get(light.lower())
    return light if tone is None else f"var(--chart-{tone.name},{tone.light})"


def page_css() -> str:
    """Return the custom properties of the figures: light, and dark on screens whose reader prefers it."""
    light = "".join(f"--chart-{tone.name}:{tone.light};" for tone in TONES)
    dark = "".join(f"--chart-{tone.name}:{tone.dark};" for tone in TONES)
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
