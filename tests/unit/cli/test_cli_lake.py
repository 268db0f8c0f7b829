"""Commands that show what a lake holds: status, audit, results; over lakes made of real events."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchpond.cli import browse, formats, output, plan, resolve, sync
from batchpond.cli.frame import Invocation, picked, root
from batchpond.errors import UsageError
from batchpond.interop.labels import Sheet
from batchpond.lake.attempts import Attempt
from batchpond.lake.events import EventLog
from batchpond.lake.records import Approval, Created, Event, Intent, Planned, Rejected, Sent, Unknown
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.plan.report import PlanReport
from batchpond.run.adopt import Adoption
from batchpond.run.forget import ForgetReport
from batchpond.run.live.run import LiveReport
from batchpond.run.recover import RecoverReport
from batchpond.run.resolve import CancelReport, TidyReport
from batchpond.run.session import Counts
from batchpond.run.submit import RetryReport, SubmitPreview, SubmitReport
from batchpond.run.sync import SyncReport
from tests.rigs.events import fact
from tests.rigs.lakes import OK, LakeBuilder

README = Path(output.__file__).with_name("README.md")


def call(lake: Path, *arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(
        root, ["--lake", str(lake), *arguments], obj=Invocation(), standalone_mode=False, catch_exceptions=False
    )


def flying(store: Store, attempt_id: str, *more: Event) -> None:
    """Record an attempt that was sent, and what followed."""
    now = datetime.now(UTC)
    intent = fact(Intent, attempt_id=attempt_id, shard_id=f"shard-{attempt_id}", shard_kind="first", ordinal=1,
        study="demo", study_version="v1", provider="openai", host="127.0.0.1", request_model="gpt-5.4-mini",
        origin="simulated", n_requests=7, cost_expected_usd=0.1, cost_max_usd=0.2,
    )  # fmt: skip
    sent = fact(Sent, attempt_id=attempt_id, ordinal=1)
    created = fact(Created, attempt_id=attempt_id, provider="openai", batch_id=f"batch_{attempt_id}", state="running",
        provider_status="in_progress", provider_created_at=now - timedelta(hours=2),
        expires_at=now + timedelta(hours=22), n_requests=7,
    )  # fmt: skip
    with store.lock("test"):
        EventLog(store).append(intent, sent, *(more or (created,)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


def test_status_of_an_empty_lake_is_empty_lists(store: Store) -> None:
    """Nothing planned is data, not an error."""
    done = call(store.path, "status", "--json")
    assert json.loads(done.stdout) == {"models": [], "batches": [], "stages": [], "waits": [], "refused": []}
    assert (done.return_value, "no study is planned" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("results", "--study", "dema"), ("status", "dema"), ("audit", "dema"), ("rank", "dema"), ("live", "dema"),
        ("export", "to", "--layout", "pairwisellm", "--study", "dema"), ("report", "dema"), ("submit", "dema"),
        ("retry", "dema"), ("cancel", "batch_aaaaaaaaaaaaaaab"), ("resolve", "batch_aaaaaaaaaaaaaaab", "--lost"),
        ("export", "to.csv", "--study", "dema"), ("forget", "--study", "dema"), ("reread", "dema"), ("tidy", "dema"),
        ("adopt", "--all", "--study", "dema"), ("label", "dema"),
        ("adopt", "batch_bbbbbbbbbbbbbbbb", "--provider", "openai", "--study", "dema"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)  # fmt: skip
def test_what_does_not_exist_is_an_error_that_names_the_nearest(store: Store, arguments: tuple[str, ...]) -> None:
    """Defect 10 of people: in every command, and before any question."""
    approval = fact(Approval, study="demo", study_version="v1")
    created = fact(Created, attempt_id="aaaaaaaaaaaaaaaa", provider="openai", batch_id="batch_aaaaaaaaaaaaaaaa")
    flying(store, "aaaaaaaaaaaaaaaa", fact(Planned, study="demo", study_version="v1"), approval, created)
    with pytest.raises(UsageError) as raised:
        call(store.path, *arguments)
    nearest = "demo" if "dema" in arguments else "batch_aaaaaaaaaaaaaaaa"
    assert f"did you mean {nearest!r}?" in (raised.value.hint or "")


def test_status_shows_open_batches_and_8_only_when_asked(store: Store) -> None:
    """A pending batch is no failure, unless a script asks with --exit-code."""
    flying(store, "aaaaaaaaaaaaaaaa")
    done = call(store.path, "status", "--json")
    (batch,) = json.loads(done.stdout)["batches"]
    assert (batch["batch_id"], batch["batch_state"], batch["n_requests"]) == ("batch_aaaaaaaaaaaaaaaa", "running", 7)
    assert batch["created_at"].endswith("Z")
    assert done.return_value == 0
    assert call(store.path, "status", "--exit-code").return_value == 8


def test_status_of_an_unknown_attempt_is_3_and_says_what_to_do(store: Store) -> None:
    """An unclear send needs attention, always."""
    unknown = fact(Unknown, attempt_id="bbbbbbbbbbbbbbbb", ordinal=1, reason="timeout")
    flying(store, "bbbbbbbbbbbbbbbb", unknown)
    done = call(store.path, "status")
    assert done.return_value == 3
    assert "batchpond resolve bbbbbbbbbb" in done.stderr


def test_status_of_one_study_leaves_the_others_out(store: Store) -> None:
    """A study's name narrows the rows."""
    flying(store, "aaaaaaaaaaaaaaaa")
    with store.lock("test"):
        EventLog(store).append(*(fact(Planned, study=study, study_version="v1") for study in ("demo", "other")))
    assert json.loads(call(store.path, "status", "other", "--json").stdout)["batches"] == []
    rows = call(store.path, "status", "demo", "--batches", "--format", "csv").stdout.splitlines()
    assert len(rows) == 2


def test_status_says_where_a_cost_is_not_all(tmp_path: Path) -> None:
    """An answer whose price is unknown is never taken for nothing, and a simulated one never for money."""
    lake = LakeBuilder(tmp_path / "priced")
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in (1, 2, 3)])
    lake.sent("A1", "S1", ["r1", "r2"], origin="batch")
    lake.lines(
        "A1",
        [
            {"request_id": "r1", "origin": "batch"} | OK,
            {"request_id": "r2", "origin": "batch"} | OK | {"cost_usd": None},
        ],
    )
    lake.sent("A2", "S2", ["r3"])
    lake.lines("A2", [{"request_id": "r3"} | OK])
    assert "$0.0100 + unknown" in call(lake.path, "status", "--format", "table").stdout


def test_audit_does_not_judge_an_open_batch(store: Store) -> None:
    """Balance is null, not false, until a batch has settled."""
    flying(store, "aaaaaaaaaaaaaaaa")
    rows = [
        {"shard_id": "shard-aaaaaaaaaaaaaaaa", "line_number": n, "request_id": f"r{n}", "request_key": f"r{n}"}
        for n in range(1, 8)
    ]
    store.publish(SHARD_REQUESTS, "shard", rows)
    done = call(store.path, "audit", "--json")
    (row,) = json.loads(done.stdout)
    assert (row["n_sent"], row["n_outstanding"], row["is_balanced"]) == (7, 7, None)
    assert done.return_value == 0


def test_audit_counts_as_open_what_a_provider_has_or_may_have(store: Store) -> None:
    """A batch that was refused, and waits to be asked for again, is not open."""
    for attempt_id, *more in (("a" * 16,), ("b" * 16, fact(Rejected, attempt_id="b" * 16, error_code="rate_limit"))):
        flying(store, attempt_id, *more)
        row = {"shard_id": f"shard-{attempt_id}", "line_number": 1, "request_id": "r", "request_key": "r"}
        store.publish(SHARD_REQUESTS, attempt_id, [row])
    assert "0 settled batches in balance, 1 still open" in call(store.path, "audit").stderr


def test_doctor_names_what_needs_a_decision(store: Store) -> None:
    """doctor ends with 3 for an unknown attempt and names it."""
    flying(store, "bbbbbbbbbbbbbbbb", fact(Unknown, attempt_id="bbbbbbbbbbbbbbbb", ordinal=1))
    done = call(store.path, "doctor", "--json")
    assert done.return_value == 3
    assert any(row["check"] == "attempts" and row["level"] == "warning" for row in json.loads(done.stdout))


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "markdown", "table"])
def test_results_of_an_empty_lake(form: str, store: Store) -> None:
    """results prints its columns, or an empty list."""
    done = call(store.path, "results", "--format", form)
    assert done.return_value is None
    assert (done.stdout == "[]\n") is (form == "json")


def test_the_first_results_are_those_of_all(tmp_path: Path) -> None:
    """They are looked up by the plan alone, of one study or of several with the same slots, whatever became of each."""
    lake = LakeBuilder(tmp_path / "lake")
    for study in ("a", "b"):
        names = [f"{study}{n}" for n in range(6)]
        lake.plan([{"slot": n, "request_id": name} for n, name in enumerate(names)], study=study)
        lake.sent(f"A{study}", f"S{study}", names[:5], study=study)
        lake.lines(f"A{study}", [{"request_id": name} | OK for name in names[1:4]])
        lake.ended(f"A{study}")
        lake.again(f"B{study}", f"S{study}", 5, study=study)
    lake.build()
    for of in ((), ("--study", "b")):
        rows = call(lake.path, "results", *of, "--format", "csv").stdout.splitlines()
        assert len(rows) == 1 + (6 if of else 12)
        for limit in (1, 3, 8, 100):
            first = call(lake.path, "results", *of, "--limit", f"{limit}", "--format", "csv").stdout.splitlines()
            assert first == rows[: limit + 1]


@pytest.mark.parametrize(
    "written", ["[limits", "[limits.openai]\nopen_batch = 1\n", '[prices."openai/x"]\ninput = "much"\n']
)
def test_doctor_tells_of_settings_that_cannot_be_read(store: Store, written: str) -> None:
    """A broken config.toml, which ends other commands with 2, is a finding that names the file, and exit 2."""
    assert call(store.path, "doctor", "--json").return_value == 0
    (store.path / "config.toml").write_text(written)
    done = call(store.path, "doctor", "--json")
    (said,) = [row for row in json.loads(done.stdout) if row["check"] == "settings"]
    assert (done.return_value, said["level"], "config.toml" in said["message"]) == (2, "error", True)


def test_cancel_and_resolve_ask_before_they_act(store: Store) -> None:
    """Without a terminal and without --yes nothing is recorded, and the flag is named."""
    flying(store, "bbbbbbbbbbbbbbbb", fact(Unknown, attempt_id="bbbbbbbbbbbbbbbb", ordinal=1))
    before = sorted(store.path.rglob("*.parquet"))
    for arguments in (["resolve", "bbbbbbbbbb", "--absent"], ["cancel", "bbbbbbbbbb"]):
        with pytest.raises(UsageError, match="needs a yes") as caught:
            call(store.path, *arguments)
        assert "--yes" in (caught.value.hint or "")
    assert sorted(store.path.rglob("*.parquet")) == before


def test_resolve_wants_exactly_one_decision(store: Store) -> None:
    """No decision, or two, is a usage error."""
    for flags in ([], ["--absent", "--lost"]):
        with pytest.raises(UsageError, match="exactly one"):
            call(store.path, "resolve", "bbbbbbbbbb", *flags)


def documented() -> dict[str, set[str]]:
    """Return the fields of each command's document, as the README lists them."""
    found = {}
    (_, rest) = README.read_text().split("| command | fields |")
    for line in rest.split("\n\n")[0].splitlines():
        command, _, fields = line.removeprefix("| `").partition("` | ")
        if line.startswith("| `") and fields:
            without_remarks = re.sub(r"\([^)]*\)", "", fields)
            found[command] = set(re.findall(r"`(\w+)`", without_remarks))
    return found


def shown() -> dict[str, set[str]]:
    """Return the fields that each command's document has."""
    preview = SubmitPreview("s", "v", (), ())
    submitted = SubmitReport(preview, is_approved=False, counts=None, n_live=0, notes=())
    synced = SyncReport(Counts(), 0, 0, 0, 0, 0, 0, 0, 0, False, ())
    return {
        "plan": {field.name for field in dataclasses.fields(PlanReport)},
        "submit": set(plan.document(submitted)),
        "retry": set(plan.retry_document(RetryReport((), submitted))),
        "live": set(sync.live_document(LiveReport((), 0, ()))),
        "sync": set(sync.document(Counts(), synced)),
        "reread": set(resolve.READINGS),
        "forget": set(picked(ForgetReport(0, 0, 0, ()))),
        "tidy": set(picked(TidyReport(0, 0, ()))),
        "cancel": set(picked(CancelReport((), ()))),
        "label": set(browse.label_document(Sheet("s", [], 0, 0, {}, []), Path())),
        "resolve": set(resolve.DECISION),
        "recover": set(resolve.recovered(RecoverReport("s", "v", (), 0, 0, 0, 0, 0.0, 0, ()))),
        "adopt": set(resolve.adopted(Adoption(Attempt(fact(Intent)), is_new=True))),
    }


def test_a_preview_of_nothing_but_what_follows_says_what_that_costs() -> None:
    text = plan.preview_text(SubmitPreview("s", "v", (), (), later_expected_usd=0.1, later_max_usd=1.0))
    assert "nothing is due until the batches that are out are answered" in text
    assert "later rounds, a forecast: expected $0.1000, at worst $1.00" in text
    assert "requests" not in text


def test_json_documents_are_as_documented(store: Store, tmp_path: Path) -> None:
    """The README's field lists are the documents' fields, no more and no fewer."""
    actual = shown()
    actual["status"] = set(json.loads(call(store.path, "status", "--json").stdout))
    actual["init"] = set(json.loads(call(tmp_path / "new", "init", str(tmp_path / "x"), "--json").stdout))
    table = tmp_path / "judgments.csv"
    table.write_text("item_first,item_second,verdict\na,b,first\nb,a,second\n")
    imported = call(store.path, "import", "judgments", str(table), "--json")
    actual["import judgments"] = set(json.loads(imported.stdout))
    arguments = ["export", str(tmp_path / "all.csv"), "--view", "events", "--json"]
    actual["export"] = set(json.loads(call(store.path, *arguments).stdout))
    listed = documented()
    assert {command: listed[command] for command in actual} == actual
    assert set(listed) - set(actual) == {"browse", "compare", "demo", "report", "run", "work"}


def test_counts_are_as_documented() -> None:
    """The README names every count."""
    text = README.read_text()
    assert [field.name for field in dataclasses.fields(Counts) if f"`{field.name}`" not in text] == []


def test_aligned_columns_line_up() -> None:
    """Numbers end and texts begin in one column, wide characters included."""
    lines = formats.aligned(("model", "n"), [("漢字", "1"), ("abc", "1,000")], n_text_columns=1)
    assert lines == ["model      n", "漢字       1", "abc    1,000"]


def test_export_takes_the_format_from_the_name(store: Store, tmp_path: Path) -> None:
    """The ending decides; without one the format must be said."""
    call(store.path, "export", str(tmp_path / "out.jsonl"), "--view", "events")
    assert (tmp_path / "out.jsonl").read_text() == ""
    with pytest.raises(UsageError, match="which format"):
        call(store.path, "export", str(tmp_path / "out"))
