"""A client whose key must never be seen anywhere."""

from __future__ import annotations

from datetime import UTC, datetime

from batchpond.providers.http.client import HttpClient, HttpLimits
from batchpond.text import Secret
from tests.rigs.clock import ManualClock

CANARY = "sk-CANARY0123456789abcdef"
START = datetime(2026, 11, 21, tzinfo=UTC)
ENVELOPE = {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": None}}
QUICK = HttpLimits(connect_s=1, idle_s=0.3, call_s=0.6, upload_s=2, download_s=1.0, slow_window_s=0.3)


def client(url: str, clock: object = None, **options: object) -> HttpClient:
    """Return a client with a canary for a key and short limits; waits on a clock that nobody waits for."""
    headers = {"Authorization": Secret(f"Bearer {CANARY}")}
    options.setdefault("limits", QUICK)
    return HttpClient(url, headers, clock or ManualClock(START), **options)  # type: ignore[arg-type]
