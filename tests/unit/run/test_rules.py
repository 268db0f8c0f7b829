"""The answer rules of a batch's requests: what a lake tells by itself, and what is kept of it from pass to pass."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.lake import tables
from batchpond.lake.records import Sharded
from batchpond.lake.schemas import PLAN, SHARD_REQUESTS, STUDIES, Table
from batchpond.lake.store import Store
from batchpond.model import ShardKind
from batchpond.run.session import Rules
from tests.rigs.events import fact

RULES = ("r0", "r1", "r2")
REQUESTS = st.frozensets(st.integers(0, 7), min_size=1, max_size=4)
PLANNED = st.tuples(st.just("plan"), st.sampled_from(RULES), REQUESTS)
SHARDED = st.tuples(st.just("shard"), st.none(), REQUESTS)
ASKED = st.tuples(st.just("ask"), st.booleans(), st.integers(0, 3))


def publish(store: Store, table: Table, name: str, rows: list[dict[str, object]]) -> None:
    """Publish rows of which only some columns matter."""
    store.publish(table, name, pa.Table.from_pylist(rows, schema=table.schema))


@settings(max_examples=20)
@given(st.lists(st.one_of(PLANNED, SHARDED, ASKED), max_size=10))
def test_rules_are_those_of_all_plans_whatever_was_kept_when(steps: list[tuple[str, object, object]]) -> None:
    """Plans and shards come in any order, passes ask about some shards, and keep what they found or die before it.

    A shard asks for what is planned by then.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store.init(Path(folder) / "lake")
        publish(store, STUDIES, "s", [{"study_version": "v", "parsers": json.dumps({name: {} for name in RULES})}])
        shards: dict[str, frozenset[int]] = {}
        plans: list[tuple[str, frozenset[int]]] = []
        for number, (what, said, which) in enumerate(steps):
            if what == "plan":
                assert isinstance(said, str)
                assert isinstance(which, frozenset)
                plans.append((said, which))
                rows = [{"study": "s", "request_id": f"q{n}", "parser_id": said} for n in sorted(which)]
                publish(store, PLAN, f"plan{number}", rows)
            elif what == "shard":
                assert isinstance(which, frozenset)
                asked_for = which & frozenset[int]().union(*(planned for _, planned in plans))
                shards[f"shard{number}"] = asked_for
                rows = [{"shard_id": f"shard{number}", "request_id": f"q{n}"} for n in sorted(asked_for)]
                publish(store, SHARD_REQUESTS, f"p_provider=openai/shard{number}", rows)
            else:
                assert isinstance(which, int)
                asked = [fact(Sharded, shard_id=name, shard_kind=ShardKind.FIRST) for name in list(shards)[which:]]
                rules = Rules(store, {})
                found = rules.of(asked)
                assert {name: {*of_shard} for name, of_shard in found.items()} == {
                    shard.shard_id: {rule for rule, planned in plans if planned & shards[shard.shard_id]}
                    for shard in asked
                }
                if said:
                    rules.keep([], is_all_read=True)


def test_a_shards_rules_are_looked_up_once(tmp_path: Path) -> None:
    """However long the lake's past is, a later pass opens no file for a shard that it knows, and one for a new one."""
    store = Store.init(tmp_path / "lake")
    publish(store, STUDIES, "s", [{"study_version": "v", "parsers": json.dumps({name: {} for name in RULES})}])
    publish(store, PLAN, "plan", [{"study": "s", "request_id": f"q{n}", "parser_id": RULES[n % 2]} for n in range(9)])
    shards = []
    for n in range(9):
        publish(store, SHARD_REQUESTS, f"p_provider=openai/s{n}", [{"shard_id": f"s{n}", "request_id": f"q{n}"}])
        shards.append(fact(Sharded, shard_id=f"s{n}", shard_kind=ShardKind.FIRST))
    first = Rules(store, {})
    first.of(shards[:8])
    first.keep([], is_all_read=False)
    for n in range(8):
        store.final_path(SHARD_REQUESTS, f"p_provider=openai/s{n}").unlink()
    found = Rules(store, {}).of(shards)
    assert [list(found[f"s{n}"]) for n in range(9)] == [[RULES[n % 2]] for n in range(9)]
    with tables.connect(store, [SHARD_REQUESTS.name]) as connection:
        assert connection.execute("SELECT count(*) FROM shard_requests").fetchall() == [(1,)]
