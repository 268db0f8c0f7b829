"""OpenAI's Batch API: files, batches and their states.

Shapes: openai 3.52 `types/batch.py`, `types/file_object.py` and the official OpenAPI file 2.3.0;
deviations that servers were seen to make are read without complaint.
"""

from __future__ import annotations

import re
from typing import Final

from batchpond.model import CreateSpec, ErrorClass, Mode, Rejected
from batchpond.providers.base import Descriptor
from batchpond.providers.http.errors import Answer, ApiError, error_class_of
from batchpond.providers.openai.body import CHAT, RESPONSES, build_body, endpoint_for, payload_line
from batchpond.providers.openai.lines import read_answer, read_line
from batchpond.providers.openai.models import accepted_thinking, caveats, nearest
from batchpond.providers.shared.batches import FilesClient, rejection
from batchpond.providers.shared.live import REQUESTS_AND_TOKENS, LiveApi

__all__ = [
    "BATCH",
    "DESCRIPTOR",
    "LIVE",
    "OpenAI",
    "accepted_thinking",
    "build_body",
    "caveats",
    "endpoint_for",
    "payload_line",
    "read_answer",
    "read_line",
]

DESCRIPTOR: Final = Descriptor(
    name="openai",
    batch_id_prefix="batch_",
    default_base_url="https://api.openai.com/v1",
    base_url_env="OPENAI_BASE_URL",
    key_env=("OPENAI_API_KEY",),
    endpoints=(CHAT, RESPONSES),
    default_endpoint=CHAT,
    max_requests=50_000,
    max_bytes=200_000_000,
    list_page_size=100,
    create_deadline_s=120.0,
    settle_s=900.0,
    results_retention_days=30,
    has_known_retention=True,
    has_token=True,
    caveats=(
        "OpenAI deletes result files 30 days after a batch ends: sync before that",
        "a batch that passes 24 hours expires: finished requests are billed and kept, the others are not run",
        "prompt tokens waiting in batches are limited per model and organisation; above it a batch fails unbilled",
        "a batch cancelled while it runs may lose answers that were already counted",
    ),
    notes=(
        "limits of requests and bytes: openai 3.52 types/batch_create_params.py",
        "retention: OpenAI batch guide and files API, recorded traffic of 2026",
        "metadata 16 pairs, keys of 64 and values of 512 characters: openai 3.52 types/shared_params/metadata.py",
        "settle time: twice the create deadline and 5 minutes, at least 15 minutes",
    ),
    requeue_codes=("token_limit_exceeded",),
    modes=(Mode.BATCH, Mode.LIVE, Mode.FILES),
    takes_schema=True,
    header_env=(("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")),
    scope_headers=("openai-organization", "openai-project"),
    nearest=nearest,
)

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
