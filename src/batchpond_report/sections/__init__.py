"""The sections of a report, a NAME.toml each, and where a section needs code a module: its `section` is called."""

from __future__ import annotations

from typing import Final

# In reading order; before them stand the study itself and what it is compared with, after them methods.
SECTIONS: Final = (
    "claims", "coverage", "consistency", "position", "places", "repeats", "paired", "ranking", "matrix", "lengths",
    "adaptive", "agreement", "compliance", "ratings", "calibration", "pressure", "answers", "disagreements", "tests",
    "failures", "money",
)  # fmt: skip
