"""OpenAI's Batch API: files, batches and their states.

Shapes: openai 3.52 `types/batch.py`, `types/file_object.py` and the official OpenAPI file 2.3.0;
deviations that servers were seen to make are read without complaint.
"""

from __future__ import annotations

import re
from typing import Final

from batchpond.model import CreateSpec, ErrorClass, Rejected
from batchpond.providers.http.errors import Answer, ApiError, error_class_of
from batchpond.providers.openai.body import CHAT, FAMILIES, RESPONSES
from batchpond.providers.shared import known
from batchpond.providers.shared.batches import FilesClient, rejection
from batchpond.providers.shared.live import REQUESTS_AND_TOKENS, LiveApi

DESCRIPTOR: Final = known.descriptor("openai", endpoints=(CHAT, RESPONSES), nearest=FAMILIES.nearest)

# The validator was seen to miss files that exist (recorded 2026-08): sending again later helps.
_FILE_NOT_READY: Final = re.compile(r"(?i)cannot find file|no such file|does not have access to it")


class OpenAI(FilesClient):
    """The client of OpenAI's Batch API, bound to one key and base URL."""

    descriptor = DESCRIPTOR

    def refusal(self, answer: Answer, spec: CreateSpec) -> Rejected:  # noqa: ARG002
        """Return what a definite no comes to; a file that is not found yet is there soon."""
        error = answer.error or ApiError(answer.excerpt())
        error_class = error_class_of(answer)
        if error_class is ErrorClass.PERMANENT and _FILE_NOT_READY.search(error.message):
            error_class = ErrorClass.TRANSIENT
        return rejection(answer, error_class, self._clock.now())


BATCH: Final = OpenAI
LIVE: Final = LiveApi(DESCRIPTOR, REQUESTS_AND_TOKENS)
