"""An embedded data lake and controller for LLM judge studies over the providers' batch APIs.

`batchpond.Lake(path)` is the Python door; `batchpond` on the command line is the other one. What its verbs return is
exported too, for annotations.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from batchpond import errors  # noqa: F401 - public

__version__ = "0.1.0"

# By what follows `batchpond` in the name of a module.
_FROM = {
    ".api": "Browsing Lake progress",
    ".doctor": "Finding",
    ".interop.imports": "ForeignReport ImportReport",
    ".interop.labels": "Question Sheet Stratum",
    ".lake.attempts": "Attempt",
    ".plan.report": "CellReport ModelReport PlanReport StageReport",
    ".run.adopt": "Adoption",
    ".run.due": "FailureCount",
    ".run.live.run": "LaneProgress LiveReport",
    ".run.recover": "FoundBatch RecoverReport",
    ".run.resolve": "CancelReport",
    ".run.session": "Counts Note",
    ".run.submit": "ModelCost RetryReport SubmitPreview SubmitReport",
    ".run.sync": "SyncReport",
    ".study.objects": "Study",
    ".study.prices": "Estimate",
    "_report.parts": "Report",
}
_HOME = {name: module for module, names in _FROM.items() for name in names.split()}

__all__ = sorted(["__version__", "errors", *_HOME])  # noqa: PLE0605 - __init__.pyi has them in full, for type checkers


def __getattr__(name: str) -> Any:
    # The engines behind Lake take most of a second to import; `--help` must not pay for them.
    if name in _HOME:
        return getattr(import_module(f"batchpond{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
