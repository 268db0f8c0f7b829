"""Studies that plan the same requests: each is asked once, by whoever can ask it, whatever the others do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase
from batchpond.providers import registry
from batchpond.run.session import Providers
from tests.rigs.sim_inputs import write_study
from tests.rigs.sim_providers import environ
from tests.rigs.sim_study import STUDY, Rig

MODEL = "gpt-4.1-mini"
CLAUDE = "claude-haiku-4-5"
OTHER = "other"
OUTAGE = "files.create@*:status=500"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A lake without a plan; `planned` makes them."""
    rig = Rig(tmp_path, models=(MODEL,), with_lens=False)
    yield rig
    rig.world.close()


class Keyless(Rig):
    """A rig whose environment has no longer a key of Anthropic once `is_keyless`."""

    is_keyless = False

    def providers(self) -> Providers:
        """Connect anew."""
        hidden = "ANTHROPIC_API_KEY" if self.is_keyless else None
        found = {name: value for name, value in environ(self.key, self.base_urls).items() if name != hidden}
        return Providers(lambda name: registry.connect(name, self.clock, transport=self.wire, environ=found))


def planned(rig: Rig, study: str, n_items: int, model: str = MODEL) -> None:
    """Plan a study over the first items: of so many, each pair in both orders, all in one batch."""
    rig.study_path = write_study(rig.path / study, max_requests=100, n_items=n_items, models=(model,))
    rig.study_path.write_text(rig.study_path.read_text().replace(f'study = "{STUDY}"', f'study = "{study}"'))
    rig.plan()


def end(rig: Rig, n_passes: int = 2) -> None:
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()


def test_what_one_study_gave_up_is_not_sent_by_another_that_died_while_it_cut_the_same(rig: Rig) -> None:
    """Cut alike, both have one shard: void for the one, whose new plan asks its requests anew, it is void for all."""
    planned(rig, OTHER, 4)
    rig.die_between_shard_and_file(lambda: rig.submit(study=OTHER))
    planned(rig, STUDY, 4)
    rig.world.add_fault(OUTAGE)
    rig.submit()
    rig.world.clear_faults()
    planned(rig, STUDY, 5)
    rig.submit()
    end(rig)
    assert rig.billed()[0] == len(rig.answers()) == 20, "as many as the new plan has"
    assert rig.violations() == []


def test_what_an_earlier_plan_of_another_study_left_unsent_is_asked_by_whoever_plans_it(rig: Rig) -> None:
    """It is no batch, and nobody will send it: it is shown as due and as not approved, and sent as soon as it is."""
    planned(rig, STUDY, 4)
    rig.world.add_fault(OUTAGE)
    rig.submit()
    rig.world.clear_faults()
    planned(rig, STUDY, 3)
    planned(rig, OTHER, 4)
    assert rig.sync().n_unapproved == 6 + 12
    assert rig.submit(study=OTHER).preview.n_requests == 12
    end(rig)
    assert rig.billed()[0] == len(rig.answers()) == 12
    assert rig.sync().n_unapproved == 0, "the new plan asks nothing else"
    assert rig.violations() == []


def test_a_study_does_not_look_for_what_others_left_that_it_does_not_ask(tmp_path: Path) -> None:
    """Where nobody has that provider's key any more, its own passes end as if there were no such study."""
    rig = Keyless(tmp_path, models=(CLAUDE,), with_lens=False)
    planned(rig, STUDY, 4, CLAUDE)
    rig.world.add_fault("batches.create@1:status=429")
    rig.submit()
    assert rig.only().phase is Phase.REJECTED
    planned(rig, STUDY, 5, CLAUDE)
    planned(rig, OTHER, 4)
    rig.is_keyless = True
    rig.notes.clear()
    codes = [rig.submit(study=OTHER).exit_code]
    for _ in range(3):
        rig.clock.advance(1_000)
        codes.append(rig.sync().exit_code)
    assert rig.billed()[0] == len(rig.answers()) == 12
    assert not [note for note in rig.notes if "anthropic" in note.lower()]
    assert ExitCode.ACCESS not in codes
    rig.world.close()


def test_a_batch_that_turns_up_of_what_was_given_up_stops_every_study_that_asks_the_same(rig: Rig) -> None:
    """Of a create that came to be hours late a new plan gave the shard up; what is not sent yet waits for a person."""
    planned(rig, STUDY, 4)
    rig.world.add_fault("batches.create@1:delay_exec=9000")
    rig.submit()
    for _ in range(4):
        rig.clock.advance(1_000)
        rig.sync(submit_due=False)
    assert rig.only().phase is Phase.ABSENT
    rig.world.clear_faults()
    rig.world.add_fault(OUTAGE)
    planned(rig, STUDY, 3)
    rig.submit()
    planned(rig, OTHER, 4)
    assert rig.submit(study=OTHER).preview.n_requests == 6, "those that the new plan does not ask"
    rig.world.clear_faults()
    rig.clock.advance(9_000)
    end(rig)
    assert rig.billed()[0] == len(rig.answers()) == 12
    assert any(OTHER in note and "might be bought twice" in note for note in rig.notes)
