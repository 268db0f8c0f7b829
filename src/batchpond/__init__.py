"""An embedded data lake and controller for LLM judge studies over the providers' batch APIs.

`batchpond.Lake(path)` is the Python door; `batchpond` on the command line is the other one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchpond import errors

__version__ = "0.1.0"

if TYPE_CHECKING:
    from batchpond.api import Lake

__all__ = ["Lake", "__version__", "errors"]


def __getattr__(name: str) -> Any:
    # The engines behind Lake take most of a second to import; `--help` must not pay for them.
    if name == "Lake":
        return import_module("batchpond.api").Lake
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
