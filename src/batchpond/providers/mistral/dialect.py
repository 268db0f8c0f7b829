"""What is asked of Mistral's models, and what they answer: chat completions, in lines that name no path."""

from __future__ import annotations

from typing import Final

from batchpond.providers import base
from batchpond.providers.compatible.dialect import Compatible
from batchpond.providers.shared.dialect import CHAT, bare_line


class Mistral(Compatible):
    """What is asked of Mistral's models, and what they answer.

    A failed row's body is its error as JSON in a text (recorded), which all rows are read for.
    """

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG002  # the job has it
        """Return one line of a batch input file, without its line feed; `body` is used as it is."""
        return bare_line(custom_id, body)


DIALECT: Final = Mistral.of(base.descriptor("mistral", endpoints=(CHAT,)), **base.table("mistral", "chat"))
