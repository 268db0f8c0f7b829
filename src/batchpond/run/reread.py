"""Settled answers that a reading is missing of: read again from the raw lines, never bought again.

A study planned later may bring a new answer rule for requests that were answered long ago, and
`responses` and `judgments` may be dropped at will.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchpond.answers import derive
from batchpond.lake import tables
from batchpond.lake.attempts import READ_PHASES, Attempt
from batchpond.run.collect import price_of, source_of
from batchpond.run.due import parser_ids_of
from batchpond.run.session import Session


def read_what_is_unread(session: Session) -> None:
    """Derive what settled attempts lack: their responses, or the judgments of a rule of their requests."""
    specs = derive.parsers(session.store)
    lacking: dict[str, derive.Lack] = {}
    for attempt in session.picture.attempts.values():
        if attempt.phase in READ_PHASES and attempt.downloads:
            lack = derive.lacking(session.store, source_of(attempt), specs)
            if lack.has_any:
                lacking[attempt.attempt_id] = lack
    if not lacking:
        return
    attempts = [session.attempt(attempt_id) for attempt_id in lacking]
    used = _used_rules(session, attempts, specs)
    for attempt in attempts:
        lack = lacking[attempt.attempt_id]
        rules = lack.parser_ids & used.get(attempt.shard_id, set())
        if not lack.is_unread and not rules:
            continue
        chosen = {parser_id: specs[parser_id] for parser_id in rules}
        with session.isolated(attempt.provider, f"reading batch {attempt.batch_id} again"):
            derive.derive(session.store, source_of(attempt), chosen, price_of(session, attempt))
            session.counts.n_read_again += 1


def _used_rules(
    session: Session, attempts: Sequence[Attempt], specs: Mapping[str, dict[str, Any]]
) -> dict[str, set[str]]:
    shard_ids = {attempt.shard_id for attempt in attempts}
    if len(specs) <= 1:
        return {shard_id: set(specs) for shard_id in shard_ids}
    with tables.connect(session.store, ["plan", "shard_requests"]) as connection:
        return parser_ids_of(connection, shard_ids)
