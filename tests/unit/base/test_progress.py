"""How far work is: told to whoever listens, shown in time, and never in the way."""

from __future__ import annotations

import sys

import pytest

from batchpond.cli import output
from batchpond.cli.output import Diagnostics, Meter, meter_text
from batchpond.clock import BYTES, Work, each, heard_by


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int, int | None]] = []
        self.n_ended = 0

    def moved(self, work: Work) -> None:
        """Keep where the work stands."""
        self.said.append((work.what, work.n_done, work.n_total))

    def ended(self, work: Work) -> None:
        """Count it."""
        self.n_ended += work.what == "reading"


def test_each_tells_how_many_items_were_taken_and_ends_when_left_early() -> None:
    """Whoever takes the items may stop at any."""
    heard = Heard()
    with heard_by(heard):
        assert list(each("ab", "reading", "letters", 2)) == list("ab")
        for _ in each("abcd", "reading", "letters"):
            break
    assert heard.said == [("reading", 0, 2), ("reading", 1, 2), ("reading", 2, 2), ("reading", 0, None)]
    assert heard.n_ended == 2


def test_without_a_listener_nothing_is_told() -> None:
    """Nor after the one that listened has left."""
    heard = Heard()
    with heard_by(heard):
        pass
    with Work("planning", "requests") as work:
        work.add(5)
    assert (work.n_done, heard.said) == (5, [])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the meter reads."""
    now_s = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now_s[0])
    return now_s


@pytest.mark.parametrize(("is_terminal", "wanted"), [(True, [1, 2, 3, 40]), (False, [40])])
def test_a_line_comes_after_a_moment_and_then_now_and_then(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    is_terminal: bool, wanted: list[int],
) -> None:  # fmt: skip
    """A second on a terminal, half a minute in a log; quick work says nothing."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with heard_by(Meter(Diagnostics())):
        with Work("quick", "steps", 1) as quick:
            quick.add()
        with Work("planning", "requests", 100) as work:
            for at_s in (0.5, 1.0, 1.1, 2.0, 3.0, 40.0):
                clock[0] = 100.0 + at_s
                work.add(int(at_s) - work.n_done)
    shown = [part.partition(" of ")[0] for part in capsys.readouterr().err.split("planning: ")[1:]]
    assert [int(number) for number in shown] == wanted


def test_a_line_has_what_is_done_of_all_the_rate_and_the_time_left() -> None:
    """Without a total there is no time left to tell."""
    work = Work("planning", "requests", 200_000)
    work.add(50_000)
    assert meter_text(work, 5.0) == "planning: 50,000 of 200,000 requests, 10,000/s, 15s left"
    work.n_total = None
    assert meter_text(work, 5.0) == "planning: 50,000 requests, 10,000/s"


def test_what_travels_is_told_in_megabytes() -> None:
    """However large it is, and whatever the provider says of its size."""
    work = Work("uploading", BYTES, 200_000_000)
    work.add(12_500_000)
    assert meter_text(work, 5.0) == "uploading: 12.5 of 200.0 MB, 2.5/s, 1m 15s left"
    work.n_total = None
    assert meter_text(work, 1.0) == "uploading: 12.5 MB, 12/s"
