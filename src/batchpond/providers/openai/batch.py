"""OpenAI's Batch API: files, batches and their states.

Shapes: openai 3.52 `types/batch.py`, `types/file_object.py` and the official OpenAPI file 2.3.0;
deviations that servers were seen to make are read without complaint.
"""

from __future__ import annotations

from typing import Final

from batchpond.providers import base
from batchpond.providers.openai.dialect import DIALECT
from batchpond.providers.shared.batches import FilesClient
from batchpond.providers.shared.live import LiveApi


class OpenAIClient(FilesClient):
    """The client of OpenAI's Batch API, bound to one key and base URL."""

    descriptor = DIALECT.DESCRIPTOR
    texts = base.texts("openai", "refusals")


BATCH: Final = OpenAIClient
LIVE: Final = LiveApi(DIALECT.DESCRIPTOR)
