"""A lake at an address, seen from two machines: what one publishes the other has, and what goes wrong is told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from batchpond import demo
from batchpond.errors import BusyError, LakeError, UsageError
from batchpond.lake import events, manifest
from batchpond.lake.events import EventLog
from batchpond.lake.records import Fresh
from batchpond.lake.schemas import EVENTS, IMPORTED_JUDGMENTS, JUDGMENTS
from batchpond.lake.store import CONFIG, LABELS, MARKER, Store
from batchpond.providers import registry
from batchpond.run.send import SEND_LEASE_S
from batchpond.run.session import Providers, Session
from batchpond_remote import lease
from batchpond_remote.bucket import Bucket
from batchpond_remote.mirror import folder_of
from tests.rigs import s3
from tests.rigs.sim_study import START
from tests.unit.remote.conftest import URL, Machine, row, said, say


def test_two_machines_have_one_lake(machines: tuple[Machine, Machine]) -> None:
    """The same id and secret, and the facts of both in one order."""
    first, second = machines
    say(first.store(), "a")
    say(second.store(is_new=True), "b")
    say(first.store(), "c")
    assert said(second.store()) == said(first.store()) == ["a", "b", "c"]
    assert first.store().secret == second.store().secret
    assert first.store().lake_id == second.store().lake_id
    assert first.store().path != second.store().path


def test_opening_costs_a_listing_and_what_is_new(machines: tuple[Machine, Machine], shop: s3.Shop) -> None:
    first, second = machines
    for study in "abc":
        say(first.store(), study)
    second.store()
    shop.calls.clear()
    second.store()
    assert shop.calls == {"LIST": 1}
    say(first.store(), "d")
    shop.calls.clear()
    second.store()
    assert shop.calls == {"LIST": 1, "GET": 1}


def test_a_name_is_won_by_one_machine_alone(machines: tuple[Machine, Machine]) -> None:
    """Where the lease does not keep two apart, the store does: the loser has the winner's fact."""
    first, second = (machine.store() for machine in machines)
    logs = [EventLog(store) for store in (first, second)]
    won = [log.append_as("sent-x-1", Fresh(study=name)) for log, name in zip(logs, "ab", strict=True)]
    assert won == [True, False]
    assert said(first) == said(second) == ["a"]


def test_while_one_machine_writes_another_is_told_who_does(machines: tuple[Machine, Machine]) -> None:
    first, second = (machine.store() for machine in machines)
    told = r"another machine is writing to this lake: sync \(process"
    with first.lock("sync"), pytest.raises(BusyError, match=told), second.lock("submit"):
        pass
    with second.lock("submit"):
        pass


def test_the_lease_of_a_machine_that_died_ends_by_itself(
    machines: tuple[Machine, Machine], shop: s3.Shop, tmp_path: Path
) -> None:
    first, second = machines
    with first.store().lock("sync"):
        standing = dict(shop.objects)
    shop.objects.clear()
    shop.objects.update(standing)  # as a machine leaves them that stops at once
    with pytest.raises(BusyError), second.store().lock("sync"):
        pass
    with first.store().lock("sync"):  # it holds the lock of its own mirror: nobody there writes any more
        standing = dict(shop.objects)
    shop.objects.clear()
    shop.objects.update(standing)
    with pytest.raises(BusyError), second.store().lock("sync"):
        pass
    second.clock.advance(lease.LEASE_S + 1)
    with second.store().lock("sync"):
        pass


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"until": 7}', b"\xff"])
def test_a_lease_that_says_nothing_holds_nobody(machines: tuple[Machine, Machine], shop: s3.Shop, text: bytes) -> None:
    for name in ("00000007", "notes.txt", "99999999x"):
        shop.objects[f"bucket-one/lakes/first/_leases/{name}"] = (text, START)
    with machines[1].store().lock("sync"):
        assert "bucket-one/lakes/first/_leases/00000008" in shop.objects


def test_what_the_store_lost_is_given_back_by_who_may_write_alone(
    machines: tuple[Machine, Machine], shop: s3.Shop
) -> None:
    """Who only looks may have listed while it was being forgotten."""
    first = machines[0]
    say(first.store(), "a")
    with first.store().lock("test"):
        manifest.take_up(first.store())
    key = next(key for key in shop.objects if "/events/" in key)
    del shop.objects[key]
    assert said(first.store()) == ["a"]
    assert key not in shop.objects
    with first.store().lock("test"):
        assert key in shop.objects


def test_who_slept_longer_than_its_lease_publishes_nothing_more(machines: tuple[Machine, Machine]) -> None:
    first, second = (machine.store() for machine in machines)
    with first.lock("sync"):
        log = EventLog(first)
        machines[0].clock.advance(lease.LEASE_S + 1)
        say(second, "b")
        with pytest.raises(LakeError, match="longer than its lease lasts"):
            log.append(Fresh(study="a"))
    assert said(second) == ["b"]
    say(first, "c")
    assert said(second.open(second.path)) == ["b", "c"]


def test_a_name_that_was_won_is_not_merged_away_before_a_day(machines: tuple[Machine, Machine]) -> None:
    """Else a machine that slept could win it once more; after a day it is merged as any other."""
    store = machines[0].store()
    machines[0].clock.advance(datetime.now(UTC).timestamp() - machines[0].clock.now().timestamp())
    with store.lock("test"):
        log = EventLog(store)
        log.append_as("sent-x-1", Fresh(study="won"))
        for number in range(70):
            log.append(Fresh(study=f"s{number:02}"))
        log.compact(lambda: None)
        assert store.has(EVENTS, "sent-x-1")
        assert len(store.published("events")) == 2
    machines[0].clock.advance(2 * 86_400)
    with store.lock("test"):
        log = EventLog(store)
        for number in range(70):
            log.append(Fresh(study=f"t{number:02}"))
        log.compact(lambda: None)
    assert not store.has(EVENTS, "sent-x-1")
    assert said(machines[1].store()).count("won") == 1


def test_a_file_that_is_merged_between_listing_and_reading_takes_nothing_away(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in its place is listed again, so that a mirror is never without what its lists of files name."""
    first, second = machines
    say(first.store(), "a")
    with first.store().lock("test"):
        manifest.take_up(first.store())
    fetch, merged = Bucket.fetch, []

    def merge_before(bucket: Bucket, name: str, into: Path) -> bool:
        if name.startswith("events/") and not merged:
            merged.append(name)
            store = first.store()
            with monkeypatch.context() as patched, store.lock("test"):
                patched.setattr(events, "COMPACT_ABOVE_FILES", 0)
                EventLog(store).compact(lambda: None)
            second.use(second.mirrors)
        return fetch(bucket, name, into)

    monkeypatch.setattr(Bucket, "fetch", merge_before)
    found = second.store()
    assert merged
    assert manifest.missing(found.path) == []
    with found.lock("test"):
        assert [event.study for event in EventLog(found).events if isinstance(event, Fresh)] == ["a"]


def test_what_is_made_again_and_what_is_dropped_follows(machines: tuple[Machine, Machine]) -> None:
    """Derived files change in place; merged events stand once; a table's file that was dropped is gone everywhere."""
    first, second = machines
    store = first.store()
    for verdict in ("first", "second"):
        with store.lock("test"):
            with store.staging(JUDGMENTS) as staged:
                staged.write([row(JUDGMENTS, request_id="r", verdict=verdict)])
            store.replace_file(JUDGMENTS, "p_parser=x/f-00000", staged.path)
        found = second.store()
        assert [path.read_bytes() for path in found.files("judgments")] == [
            path.read_bytes() for path in store.files("judgments")
        ]
    with store.lock("test"):
        store.drop(store.files("judgments")[0])
        log = EventLog(store)
        for number in range(70):
            log.append(Fresh(study=f"s{number:02}"))
        log.compact(lambda: None)
    found = second.store()
    assert found.files("judgments") == []
    assert said(found) == [f"s{number:02}" for number in range(70)]
    assert len(found.published("events")) == len(store.published("events")) == 1


def test_a_fact_that_the_store_lost_comes_back_from_a_mirror(machines: tuple[Machine, Machine], shop: s3.Shop) -> None:
    """What the lists of files still name is put back by the next that writes; nothing is dropped for its absence."""
    first, second = machines
    say(first.store(), "a")
    with first.store().lock("test"):
        manifest.take_up(first.store())
    key = next(key for key in shop.objects if "/events/" in key)
    lost = shop.objects.pop(key)
    with pytest.raises(LakeError, match="it was published and is not there"), second.store().lock("sync"):
        EventLog(second.store())
    say(first.store(), "b")
    assert shop.objects[key][0] == lost[0]
    assert said(second.store()) == ["a", "b"]


def test_an_emptied_bucket_empties_no_mirror(machines: tuple[Machine, Machine], shop: s3.Shop) -> None:
    first, _ = machines
    say(first.store(), "a")
    path = first.store().path
    shop.objects.clear()
    with pytest.raises(LakeError, match="there is no lake at s3://bucket-one/lakes/first any more"):
        first.store()
    assert list((path / "events").iterdir())


def test_another_lake_at_the_same_address_is_not_mixed_with_the_first(
    machines: tuple[Machine, Machine], shop: s3.Shop
) -> None:
    first, second = machines
    say(first.store(), "a")
    shop.objects.clear()
    second.store(is_new=True)
    with pytest.raises(LakeError, match="holds another lake"):
        first.store()


def test_settings_at_the_address_are_those_of_every_machine(machines: tuple[Machine, Machine], shop: s3.Shop) -> None:
    first, _ = machines
    mine = first.store().path / CONFIG
    mine.write_text("# mine\n")
    assert (first.store().path / CONFIG).read_text() == "# mine\n"
    shop.objects[f"bucket-one/lakes/first/{CONFIG}"] = (b"# ours\n", START)
    assert {(machine.store().path / CONFIG).read_text() for machine in machines} == {"# ours\n"}


def test_what_is_no_part_of_a_lake_is_left_alone(machines: tuple[Machine, Machine], shop: s3.Shop) -> None:
    """A name that would lead out of the mirror is an error that names it."""
    first, _ = machines
    for name in ("notes.txt", "raw/.hidden.parquet", "_live/x/y.jsonl", "events/x.txt"):
        shop.objects[f"bucket-one/lakes/first/{name}"] = (b"no", START)
    path = first.store().path
    assert {entry.name for entry in path.iterdir()} <= {
        MARKER, ".secret", ".address", ".tags", ".pulling", ".writing", ".lease", "_tmp", "_payloads", ".lock",
    }  # fmt: skip
    shop.objects["bucket-one/lakes/first/events/../../x.parquet"] = (b"no", START)
    with pytest.raises(LakeError, match=r"could not list.*events/\.\./\.\./x\.parquet"):
        first.store()


def test_an_address_without_a_lake_says_so(shop: s3.Shop) -> None:
    with pytest.raises(UsageError, match="s3://bucket-one/nothing is not a lake"):
        Store.open(Path("s3://bucket-one/nothing"))


def test_a_bucket_that_cannot_be_reached_is_said_and_nothing_is_lost(
    machines: tuple[Machine, Machine], shop: s3.Shop
) -> None:
    first, _ = machines
    store = first.store()
    shop.faults += [("PUT", "/events/", "denied")]
    with pytest.raises(LakeError, match="may not write events/"):
        say(store, "a")
    assert said(first.store()) == []
    say(store, "b")
    assert said(first.store()) == ["b"]


def test_an_unanswered_create_is_waited_for_longer_than_where_all_share_a_lock(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """By what a sender elsewhere may take to make its call, twice what it gives up after, and the call itself."""
    with Providers(
        lambda name: registry.connect(name, clock=machines[0].clock, environ={"ANTHROPIC_API_KEY": "x"})
    ) as providers:
        found = providers.get("anthropic")
        waits_s = [
            Session.begin(store, providers).settle_s(found)
            for store in (Store.init(tmp_path / "here"), machines[0].store())
        ]
    assert waits_s[1] - waits_s[0] == 2 * SEND_LEASE_S + found.descriptor.create_deadline_s


def test_the_demo_keeps_out_of_a_lake_at_an_address_that_holds_anything(machines: tuple[Machine, Machine]) -> None:
    """Also from a machine that has no mirror of it yet."""
    store = machines[0].store()
    with store.lock("test"):
        store.publish(IMPORTED_JUDGMENTS, "a", [row(IMPORTED_JUDGMENTS, study="theirs")])
    machines[1].use(machines[1].mirrors)
    with pytest.raises(UsageError, match=f"{URL} holds real data"):
        demo.run(folder_of(URL), lambda _: None)


def test_a_folder_has_one_mirror_whatever_the_address_ends_in() -> None:
    assert folder_of(URL) == folder_of(f"{URL}/") != folder_of(f"{URL}2")


def test_a_lake_is_copied_to_a_bucket_and_goes_on_there(
    machines: tuple[Machine, Machine], shop: s3.Shop, tmp_path: Path
) -> None:
    """Also over what a copy left that was killed; what waits on this machine, or is there already, is refused."""
    here = Store.init(tmp_path / "here", machines[0].clock)
    say(here, "a")
    (here.path / CONFIG).write_text("# ours\n")
    address = Path("s3://bucket-one/moved")
    shop.faults.append(("PUT", MARKER, "denied"))
    with pytest.raises(LakeError, match="may not write"):
        here.copy_to(address)
    shop.objects["bucket-one/moved/events/e-left.parquet"] = (b"of a copy that was killed", START)
    assert here.copy_to(address) == len([key for key in shop.objects if "/moved/" in key])
    there = machines[1].store("s3://bucket-one/moved")
    assert (there.lake_id, there.secret, said(there)) == (here.lake_id, here.secret, ["a"])
    assert (there.path / CONFIG).read_text() == "# ours\n"
    say(there, "b")
    with pytest.raises(UsageError, match="there is a lake at s3://bucket-one/moved"):
        here.copy_to(address)
    with pytest.raises(UsageError, match="is no address of a bucket"):
        here.copy_to(tmp_path / "elsewhere")
    (here.path / LABELS).write_text("a label\n")
    with pytest.raises(UsageError, match="is of this machine alone"):
        here.copy_to(Path("s3://bucket-one/other"))
