"""Another program that uses the same Anthropic account: it makes batches of its own, as large as one likes."""

from __future__ import annotations

import httpx

from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import Rig
from tests.rigs.sim_transport import SimulatorTransport


def make_batch(rig: Rig, n_requests: int, key: str | None = None) -> str:
    """Create a batch without batchpond and remember it as foreign; returns its id."""
    params = {"model": "claude-haiku-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}
    body = {"requests": [{"custom_id": f"theirs-{n}", "params": params} for n in range(n_requests)]}
    headers = {"x-api-key": key or rig.key, "anthropic-version": "2023-06-01"}
    url = f"{SIMULATED['anthropic'].base_url}/v1/messages/batches"
    before = set(rig.world.ledger.batches)
    try:
        # Not by the rig's own wire: that counts the creates of batchpond.
        with httpx.Client(transport=SimulatorTransport(rig.world, rig.clock)) as client:
            answer = client.post(url, json=body, headers=headers)
    finally:
        rig.foreign |= set(rig.world.ledger.batches) - before
        rig.wire.restart()
    answer.raise_for_status()
    return str(answer.json()["id"])
