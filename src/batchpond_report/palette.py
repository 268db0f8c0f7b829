"""The colours of the figures: each a role with one value for light pages and paper, and one for dark pages.

Every light value is its own, so a drawn figure's colours name their roles: the page replaces them by CSS custom
properties (`page_colour`), and one drawing serves light, dark and print. Series follow Okabe and Ito 2008 ("Color
universal design"), darkened until each has a contrast of at least 3:1 against its background (WCAG 2.2, 1.4.11); text
and the numbers in cells have at least 4.5:1 (1.4.3).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Tone:
    """A colour by its role: hexadecimal values for light and for dark pages."""

    name: str
    light: str
    dark: str


_DATA: Final = tomllib.loads(Path(__file__).with_name("palette.toml").read_text("utf-8"))


def _row(name: str) -> tuple[Tone, ...]:
    return tuple(Tone(f"{name}-{number}", *pair) for number, pair in enumerate(_DATA[name], 1))


_ROLES: Final = tuple(Tone(name, *pair) for name, pair in _DATA["roles"].items())
ROLES: Final = {tone.name: tone for tone in _ROLES}
INK, MUTED, GRID, AXIS, REFERENCE, BAND, PAPER, CELL_INK, CELL_INK_STRONG, NO_VALUE = _ROLES
SERIES: Final = _row("series")
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
DIVERGING: Final = _row("diverging")
SEQUENTIAL: Final = _row("sequential")
_STRONG: Final = frozenset((*DIVERGING[:2], *DIVERGING[-2:], *SEQUENTIAL[-3:]))

TONES: Final = (*_ROLES[:7], *SERIES, *_ROLES[7:], *DIVERGING, *SEQUENTIAL)
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
