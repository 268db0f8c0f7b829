"""An embedded data lake and controller for LLM judge studies over the providers' batch APIs.

`batchpond.Lake(path)` is the Python door; `batchpond` on the command line is the other one. What its verbs return is
exported too, for annotations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchpond import errors

__version__ = "0.1.0"

if TYPE_CHECKING:
    from batchpond.api import Browsing, Lake, progress
    from batchpond.doctor import Finding
    from batchpond.interop.imports import ForeignReport, ImportReport
    from batchpond.interop.labels import Sheet
    from batchpond.plan.report import PlanReport
    from batchpond.results.report.parts import Report
    from batchpond.run.adopt import Adoption
    from batchpond.run.live.run import LiveReport
    from batchpond.run.recover import RecoverReport
    from batchpond.run.resolve import CancelReport
    from batchpond.run.submit import RetryReport, SubmitPreview, SubmitReport
    from batchpond.run.sync import SyncReport
    from batchpond.study.objects import Study

_FROM = {
    "api": "Browsing Lake progress",
    "doctor": "Finding",
    "interop.imports": "ForeignReport ImportReport",
    "interop.labels": "Sheet",
    "plan.report": "PlanReport",
    "results.report.parts": "Report",
    "run.adopt": "Adoption",
    "run.live.run": "LiveReport",
    "run.recover": "RecoverReport",
    "run.resolve": "CancelReport",
    "run.submit": "RetryReport SubmitPreview SubmitReport",
    "run.sync": "SyncReport",
    "study.objects": "Study",
}
_HOME = {name: module for module, names in _FROM.items() for name in names.split()}

__all__ = [
    "Adoption",
    "Browsing",
    "CancelReport",
    "Finding",
    "ForeignReport",
    "ImportReport",
    "Lake",
    "LiveReport",
    "PlanReport",
    "RecoverReport",
    "Report",
    "RetryReport",
    "Sheet",
    "Study",
    "SubmitPreview",
    "SubmitReport",
    "SyncReport",
    "__version__",
    "errors",
    "progress",
]


def __getattr__(name: str) -> Any:
    # The engines behind Lake take most of a second to import; `--help` must not pay for them.
    if name in _HOME:
        return getattr(import_module(f"batchpond.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
