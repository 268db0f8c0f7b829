"""Together's requests and answers: chat completions, and errors whose text says what they are.

Parameters: together 3.1 `types/chat/completion_create_params.py`. Together checks them when a line runs, so what
a model refuses comes back as an errored row. Rows: `{id, custom_id, response: {status_code, body}}` in the output file,
`{id, custom_id, error: {code, message}}` in the error file. One code, `batch_client_error`, was seen for all errors, so
the text decides what kind a failure is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.model import Response
from batchpond.providers import base
from batchpond.providers.shared.dialect import BARE_LINE, CHAT, ChatDialect
from batchpond.providers.shared.lines import without_thoughts

LINE_BYTES_MAX: Final = 10_000_000
NO_FILE_CODE: Final = "input_file_unavailable"
_EFFORTS: Final = base.table("together", "efforts")
_SWITCH: Final = base.table("together", "switch")
_ALWAYS_REASONS: Final = re.compile(r"(?i)openai/gpt-oss-")
_DISCOUNTS: Final = base.table("together", "discounts")


class Together(ChatDialect):
    """What is asked of Together's models, and what they answer."""

    DESCRIPTOR = base.descriptor(
        "together",
        endpoints=(CHAT,),
        requeue_codes=(NO_FILE_CODE,),
        batch_discounts=_DISCOUNTS,
        base_of=lambda url, _: f"{url.removesuffix('/v1')}/v1",  # with it as OpenAI's SDK needs it, and without
    )
    line_form = BARE_LINE
    reserved = base.table("together", "reserved")

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model before money is spent on it."""
        return () if model in _DISCOUNTS else (f"{model}: Together charges its standard price in batches too",)

    def words(self, model: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the thinking words of a model: efforts, and a switch where it can be turned off."""
        return _EFFORTS if _ALWAYS_REASONS.match(model) else _SWITCH | _EFFORTS

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one line of a batch input file, without its line feed; `body` is used as it is.

        Raises UsageError for a line that Together would not read.
        """
        line = super().payload_line(custom_id, endpoint, body)
        if len(line) > LINE_BYTES_MAX:
            raise UsageError(
                f"request {custom_id}: its line has {len(line):,} bytes, and Together reads up to {LINE_BYTES_MAX:,}",
                hint="shorten the item's text",
            )
        return line

    def settle(self, response: Response, total_tokens: int | None) -> Response:  # noqa: ARG002
        """Return a success; models whose thoughts Together does not keep apart write them into the text."""
        return without_thoughts(response)


DIALECT: Final = Together()
