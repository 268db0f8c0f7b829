"""The page `tests/spark/VIEWS.md`, made from what is known of each engine: `python -m tests.rigs.spark_page`."""

from __future__ import annotations

import tomllib
from typing import Final

from batchpond.views import refresh
from batchpond_spark import dialect
from tests.rigs.sql import TESTS

ERRORS: Final = TESTS / "spark" / "errors.toml"
PAGE: Final = ERRORS.with_name("VIEWS.md")
_HEAD: Final = """\
# The views on engines of Spark SQL

This page is made from `tests/spark/errors.toml` and the product's list of refused views by
`python -m tests.rigs.spark_page`; do not edit it. `pytest tests/spark` holds it against an engine: what is `equal`
gives what DuckDB gives, value by value to 1e-9, over the cases, the golden sets and three lakes; anything else gives
this error.

Seen last:

{seen}

{n_printed} of {n} views are printed, {n_refused} are refused with a reason. Sail runs {n_sail} of those printed, and
Spark {n_spark}.

| view | Spark | Sail |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    errors, refused = tomllib.loads(ERRORS.read_text("utf-8")), dialect.refused()
    seen = "\n".join(f"- {when}" for when in errors.pop("seen").values())
    views = sorted(name for script in refresh.scripts() for name in script.views)
    printed = [name for name in views if name not in refused]
    lines = [
        f"| `{name}` | "
        + " | ".join(
            f"refused: {refused[name]}" if name in refused else _said(errors[engine].get(name))
            for engine in ("spark", "sail")
        )
        + " |"
        for name in views
    ]
    counts = {f"n_{engine}": sum(name not in errors[engine] for name in printed) for engine in errors}
    return (
        _HEAD.format(seen=seen, n=len(views), n_printed=len(printed), n_refused=len(refused), **counts)
        + "\n".join(lines)
        + "\n"
    )


def _said(error: str | None) -> str:
    return "equal" if error is None else f"not here: `{error}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
