"""Groq's Batch API: files and batches, in OpenAI's words, and lists without pages.

Shapes: groq 1.7 `types/batch_*.py`, `types/file_*.py`; no traffic was recorded.
"""

from __future__ import annotations

from typing import Final

from batchpond.providers.groq.dialect import DIALECT
from batchpond.providers.http.errors import AckRule
from batchpond.providers.shared.batches import FilesClient
from batchpond.providers.shared.live import LiveApi


class GroqClient(FilesClient):
    """The client of Groq's Batch API, bound to one key and base URL."""

    descriptor = DIALECT.DESCRIPTOR
    ack = AckRule(request_id_headers=("x-request-id", "cf-ray"))


BATCH: Final = GroqClient
LIVE: Final = LiveApi(DIALECT.DESCRIPTOR)
