"""Raw lines become responses, and responses judgments."""

from collections.abc import Mapping
from typing import Any, Final

READER_VERSION: Final = 1
"""Goes up when lines are read otherwise; responses are then made anew from the raw lines."""


def read_by(parser_id: str, spec: Mapping[str, Any], reader: int) -> tuple[str, dict[str, Any]]:
    """Return the name that judgments have by an answer rule and a reader, and the rule with the reader.

    The first reader's have the rule's own name, by which all were read once; `plan_current` names them the same way.
    """
    return (parser_id if reader == 1 else f"{parser_id}-r{reader}"), {**spec, "read_by": reader}
