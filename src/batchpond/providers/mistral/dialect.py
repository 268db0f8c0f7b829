"""What is asked of Mistral's models, and what they answer: chat completions, in lines that name no path."""

from __future__ import annotations

from typing import Final

from batchpond.providers import base
from batchpond.providers.compatible.dialect import Compatible
from batchpond.providers.shared.dialect import BARE_LINE, CHAT


class Mistral(Compatible):
    """What is asked of Mistral's models, and what they answer.

    A failed row's body is its error as JSON in a text (recorded), which all rows are read for.
    """

    line_form = BARE_LINE


DIALECT: Final = Mistral.of(base.descriptor("mistral", endpoints=(CHAT,)), **base.table("mistral", "chat"))
