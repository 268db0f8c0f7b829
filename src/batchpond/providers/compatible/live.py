"""The calls to OpenAI-compatible hosts, and to a server of one's own that has OpenAI's Batch API too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from batchpond.model import RemoteFile
from batchpond.providers.compatible.dialect import Compatible
from batchpond.providers.http.errors import AckRule, HttpError
from batchpond.providers.shared.batches import FilesClient
from batchpond.providers.shared.live import LiveApi

_NOT_SERVED = frozenset({404, 405, 501})


class CompatibleClient(FilesClient):
    """The client of a batch API like OpenAI's, with errors of any form, bound to one key and base URL."""

    ack = AckRule(has_text_errors=True)

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Upload a payload; safe to repeat. A server without `/files` is one to be asked otherwise."""
        try:
            return super().upload(path, filename)
        except HttpError as error:
            if error.status_code in _NOT_SERVED:
                error.hint = f'{self.host} has no batches of OpenAI\'s kind: set mode = "live" for its models'
            raise


def calls(host: Compatible) -> SimpleNamespace:
    """Return what makes the calls to one host: its BATCH and LIVE, as the modules of the other providers have them."""
    batch = type("HostClient", (CompatibleClient,), {"descriptor": host.DESCRIPTOR})
    return SimpleNamespace(BATCH=batch, LIVE=LiveApi(host.DESCRIPTOR))
