"""The version of this package, for those who must not load the rest of it."""

from __future__ import annotations

__version__ = "0.1.0"
