"""xAI's Batch API: files, batches without a status, and results in pages.

Shapes: `batch.proto` and `files.proto` of xai-proto 2026-05 for the names, recorded traffic of 2026 for how REST has
them: dates without a time, `:cancel`, errors of two texts. Batches are made of a file: what makes one without is a
container whose requests are added later, call by call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from batchpond import fields
from batchpond.errors import ProviderError
from batchpond.model import BatchError, BatchPage, BatchState, CreateSpec, Download, RemoteBatch
from batchpond.providers import base
from batchpond.providers.http import transfers
from batchpond.providers.http.errors import AckRule
from batchpond.providers.shared.batches import FilesClient, Order, Page, every_page, own_token, page_by_token
from batchpond.providers.shared.lines import load_row
from batchpond.providers.shared.live import LiveApi
from batchpond.providers.xai.dialect import DIALECT, TEXTS
from batchpond.text import redact

_TOKEN: Final = "pagination_token"
_ROWS_PER_PAGE, _ROWS_PEEKED = 1_000, 20
_PAGE_BYTES_MAX: Final = 256 << 20
_ONE_DAY: Final = timedelta(days=1)  # that a date without a time may mean


class XaiClient(FilesClient):
    """The client of xAI's Batch API, bound to one key and base URL. A batch's id names its results."""

    descriptor = DIALECT.DESCRIPTOR
    texts = TEXTS
    lists_newest_first = False  # no document says so
    cancel_suffix = ":cancel"
    members = base.table("xai", "batch")
    file_members = base.table("xai", "file")
    ack = AckRule(
        id_field="batch_id",
        request_id_headers=("x-request-id", "x-zero-data-retention", "x-data-retention", "cf-ray"),
        has_text_errors=True,
    )

    def order(self, spec: CreateSpec) -> Order:
        """Return a batch of an uploaded file, whose name is its token."""
        return Order(self.batches_path, {"name": spec.token, "input_file_id": spec.input_file_id})

    @classmethod
    def state_of(cls, status: str, found: Mapping[str, Any]) -> BatchState:  # noqa: ARG003  # there is none
        """Return the state, which counters tell, and what stands beside them.

        Cancelled ones were seen to turn into successes some seconds later: see `cancel_settle_s` of the descriptor.
        """
        if fields.identifier(found.get("cancel_by_xai_message")):
            return BatchState.FAILED
        names = ("num_requests", "num_pending", "num_success", "num_error", "num_cancelled")
        n_total, n_pending, *ended = (fields.count(fields.inside(found, f"state.{name}")) or 0 for name in names)
        is_done = n_total > 0 and n_pending == 0 and sum(ended) >= n_total
        if is_done:
            return BatchState.CANCELLED if found.get("cancel_time") and ended[-1] else BatchState.COMPLETED
        if found.get("cancel_time"):
            return BatchState.CANCELLING
        return BatchState.RUNNING if n_total else BatchState.QUEUED

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a batch with its token, its results, and why xAI gave it up."""
        message = fields.identifier(found.get("cancel_by_xai_message"))
        has_rows = batch.state.is_terminal and bool(batch.n_total)
        return replace(
            batch,
            provider_status=str(batch.state),
            token=own_token(found.get("name")),
            errors=() if message is None else (BatchError(None, redact(message)),),
            output_file_id=batch.batch_id if has_rows else None,
        )

    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None where it may be missing."""
        batch = super().get(batch_id)
        return None if batch is None else self._aged(batch)

    def _aged(self, batch: RemoteBatch) -> RemoteBatch:
        """Return a batch that waits past its last day as one that expired, with what was answered."""
        is_over = batch.expires_at is not None and self._http.now() > batch.expires_at + _ONE_DAY
        if batch.state.is_terminal or not is_over:
            return batch
        has_rows = batch.batch_id if batch.n_total else None
        return replace(batch, state=BatchState.EXPIRED, provider_status="expired", output_file_id=has_rows)

    def list_page(self, cursor: str | None) -> BatchPage:
        """Return one page of the team's batches, in an order that no document tells."""
        params = {self.size_name: self.descriptor.list_page_size}
        names = (_TOKEN, _TOKEN)
        page = self.page_of(page_by_token(self._http, self.batches_path, params, cursor, "batches", names))
        return replace(page, batches=tuple(map(self._standing, page.batches)))

    def _standing(self, batch: RemoteBatch) -> RemoteBatch:
        """Return a listed batch as it stands: counters are not always beside one, and then ours are asked for."""
        if batch.token is not None and not fields.mapping(batch.seen.get("state")):
            return self.get(batch.batch_id) or batch
        return self._aged(batch)

    def files_page(self, cursor: str | None) -> Page:
        """Return one page of the team's files."""
        params = {self.size_name: self.descriptor.list_page_size}
        return page_by_token(self._http, self.files_path, params, cursor, "data", (_TOKEN, _TOKEN))

    def download(self, file_id: str, path: Path) -> Download | None:
        """Write all pages of a batch's results to `path`, a result a line, its members sorted; None on 404."""
        first = self._results(file_id, _ROWS_PER_PAGE, None)
        if first is None:
            return None
        try:
            return transfers.write(self._lines(file_id, first), path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of what `download` gives; None where it gives None."""
        found = self._results(file_id, _ROWS_PEEKED, None)
        return None if found is None else b"".join(map(_line, found[0]))[:max_bytes]

    def _lines(self, batch_id: str, first: Page) -> Iterator[bytes]:
        def page(cursor: str | None) -> Page:
            found = first if cursor is None else self._results(batch_id, _ROWS_PER_PAGE, cursor)
            if found is None:
                raise ProviderError(f"{self.host} does not have the rest of the results of {batch_id}")
            return found

        for rows in every_page(page, f"the results of {batch_id} at {self.host} have no end"):
            yield from map(_line, rows)

    def _results(self, batch_id: str, n_rows: int, cursor: str | None) -> Page | None:
        """Return a page of results, however odd its texts are; raises ProviderError for what is none."""
        after = "" if cursor is None else f"&{_TOKEN}={quote(cursor, safe='')}"
        path = f"{self.path_of(batch_id)}/results?{self.size_name}={n_rows}{after}"
        body = self._http.peek(path, _PAGE_BYTES_MAX)
        if body is None:
            return None
        page = load_row(body, None, "the page")
        if isinstance(page, str) and n_rows > 1:  # cut off: too large, or too slow for one call
            return self._results(batch_id, max(1, n_rows // 10), cursor)
        rows = None if isinstance(page, str) else page.get("results")
        token = None if isinstance(page, str) else page.get(_TOKEN) or None
        is_still = token is not None and token == cursor
        if not isinstance(rows, list) or is_still or not isinstance(token, str | None):
            raise ProviderError(f"GET {path} at {self.host} answered without a page of results that goes on")
        return Page(rows, token)


_line = partial(orjson.dumps, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)

BATCH: Final = XaiClient
LIVE: Final = LiveApi(DIALECT.DESCRIPTOR)
