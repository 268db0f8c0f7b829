"""The sections of a report, a module each: `section` looks for its data and returns it, None where there is none."""

from __future__ import annotations

from typing import Final

# In reading order; the section on the study itself stands before them all.
SECTIONS: Final = (
    "coverage", "consistency", "position", "repeats", "paired", "ranking", "matrix", "lengths", "adaptive",
    "agreement", "compliance", "ratings", "calibration", "pressure", "disagreements", "failures", "money",
)  # fmt: skip
