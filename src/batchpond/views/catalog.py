"""What there is to query: the lake's tables and every view, each with its grain and its question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchpond.views import scripts
from batchpond.views.database import empty

TABLE_STAGE: Final = "lake"

_TABLES: Final = {
    "studies": ("study, study_version", "What does a study file, in one version, describe?"),
    "items": ("item_hash, item_id", "Which items were judged, by content?"),
    "rubrics": ("rubric_hash, rubric_id", "Which rubrics were they judged by, by content?"),
    "templates": ("template_hash, template_id", "Which prompt texts were used, by content?"),
    "requests": ("request_id", "Which prompts, with full body, are there to ask of a model?"),
    "plan": ("study, study_version, slot", "Where in a study does each request stand?"),
    "shard_requests": ("shard_id, line_number", "Which requests go into one provider batch, in which order?"),
    "events": ("event_id", "What happened to every study, approval, attempt and batch?"),
    "raw": ("provider, batch_id, file_id, file_sha256, line_number", "What did the provider send, byte for byte?"),
    "responses": ("provider, batch_id, file_id, line_number", "What does each raw line say, made uniform?"),
    "judgments": ("provider, batch_id, file_id, line_number, parser_id", "What did a task's parser read in it?"),
    "doubts": (
        "attempt_id, custom_id, found_at",
        "Which live calls may have been answered and paid though no whole answer came, and why?",
    ),
    "imported_judgments": ("import_key", "Which judgments come from elsewhere?"),
}


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A table or view that can be queried, and what its header says about it."""

    name: str
    stage: str
    grain: str
    question: str

    @property
    def grain_columns(self) -> tuple[str, ...]:
        """The columns that together name one row."""
        return tuple(column.strip() for column in self.grain.split(",") if column.strip())


def views() -> list[ViewInfo]:
    """Return the lake's tables, then every view, each after those it reads."""
    tables = [ViewInfo(name, TABLE_STAGE, grain, question) for name, (grain, question) in _TABLES.items()]
    return tables + [
        ViewInfo(name, script.stage, *(script.header.get(field, "") for field in ("grain", "question")))
        for script in scripts.scripts()
        for name in script.views
    ]


def is_view(name: str) -> bool:
    """Whether there is such a table or view; reads no SQL: a file of views is called as the one it makes."""
    return name in _TABLES or name in scripts.view_names()


def columns() -> dict[str, list[str]]:
    """Return the column names of every table and view."""
    with empty() as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns ORDER BY table_name, ordinal_position"
        ).fetchall()
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found
