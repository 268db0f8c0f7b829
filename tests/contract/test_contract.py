"""Every provider under every kind of fault: one batch a shard, no answer lost, misplaced or paid for twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from batchpond.lake.attempts import Phase
from batchpond.model import BatchState, ErrorClass
from batchpond.run.resolve import cancel
from batchpond.run.submit import retry
from batchpond_sim.world.faults import KINDS, Op, parse_fault
from tests.flow.test_media import with_photos
from tests.rigs import schedules
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY, Rig
from tests.rigs.swept import IS_ALL, every

# Kinds that the schedules do not draw, because they mean nothing to most providers or never end.
HARMLESS = (
    *schedules.HARMLESS,
    "batches.create@1:retry_after=120", "batches.create@1:output_at=response", "batches.create@1:output_at=metadata",
    "batches.create@1:job_state", "batches.create@1:no_input_config", "batches.create@1:shards=3",
    "batches.create@1:inline_results=in_order", "batches.create@1:inline_results=reordered",
    "batches.list@1:counts_late", "files.upload@1:cut_upload=700", "files.content@1:content_type=none",
    "files.content@1:content_type=text/plain", "files.content@1:gzip", "files.content@1:gzip=unmarked",
    "lines@1:in_order", "lines@1:reorder",
)  # fmt: skip
LOSSY = (
    *schedules.LOSSY,
    "batches.create@1:inline_results=no_metadata", "lines@1:swapped_bodies", "lines@1:finish=MAX_TOKENS",
    "lines@1:blocked=SAFETY", "lines@1:status_rows", "lines@1:filtered_rows=2", "batches.create@1:cancel_race=full",
)  # fmt: skip
# Vertex AI answers with Gemini's models: by itself it is tried where its wire is its own, unless all is asked for.
OF_VERTEX = frozenset({
    "batches.create@1:reset_after", "batches.create@1-3:html_after=502", "batches.create@1:status=401",
    "batches.create@1:delay_exec=500", "batches.create@1-3:stale_list=300",
    "batches.create@1:enqueued", "batches.create@1:notfound_after_create=3", "batches.create@1-2:results_404=2",
    "batches.create@1:file_not_ready", "batches.create@1:clock_skew=40000", "batches.create@1:shards=3",
    "batches.create@1:no_input_config", "batches.create@1:output_at=metadata", "batches.create@1:cancel_race=full",
    "batches.create@1:expire=0.5", "batches.create@1:expire_bare", "batches.create@1:fail=invalid_request",
    "batches.create@1:empty_output", "batches.list@1-2:cursor_loop", "batches.list@1:empty_page",
    "batches.list@1:status=401", "batches.list@1:counts_null",
    "batches.list@1:error_file_empty_string", "files.create@1:reset_after", "files.create@1:store=0.5",
    "files.create@1-2:stale_list=400", "files.upload@1:cut_upload=700",
    "files.list@1:status=500", "files.content@1-9:truncate=0.3", "files.content@1-3:status=404",
    "files.content@1:gzip=unmarked", "files.content@1:reset_at=300", "files.content@1:changed",
    "lines@1:duplicate_differs", "lines@1:missing_id", "lines@1-2:error_rows=3", "lines@1:lone_surrogate=2",
    "lines@1:swapped_bodies",
})  # fmt: skip
# Together's wire is like OpenAI's but for its listing, its errors and how a batch is found again: by its file.
OF_TOGETHER = frozenset({
    "batches.create@1:reset_after", "batches.create@1:reset_before", "batches.create@1-3:html_after=502",
    "batches.create@1:html_after=200", "batches.create@1:status_after=500", "batches.create@1:status=401",
    "batches.create@1-2:status=429", "batches.create@1-2:billing", "batches.create@1:file_not_ready",
    "batches.create@1:delay_exec=500", "batches.create@1-3:stale_list=300", "batches.create@1:enqueued",
    "batches.create@1:notfound_after_create=3", "batches.create@1-2:results_404=2", "batches.create@1:clock_skew=40000",
    "batches.create@1:cancel_race=full", "batches.create@1:expire=0.5", "batches.create@1:expire_bare",
    "batches.create@1:fail=invalid_request", "batches.create@1:empty_output", "batches.list@1:status_word=archiving",
    "batches.list@1:error_file_empty_string", "batches.list@1:list_error_page=1", "batches.list@1:html=200",
    "files.create@1:reset_after", "files.create@1:store=0.5", "files.create@1-2:stale_list=400",
    "files.list@1:status=500", "files.content@1-9:truncate=0.3", "files.content@1:gzip=unmarked",
    "files.content@1:changed", "lines@1-2:drop=2", "lines@1:duplicate_differs", "lines@1-2:error_rows=3",
    "lines@1:billing_rows=2", "lines@1:status_in_output",
})  # fmt: skip
# Groq's is OpenAI's, word by word, but for its lists, which are told whole: what goes wrong around those is tried.
OF_GROQ = frozenset({
    "batches.create@1:reset_after", "batches.create@1-3:html_after=502", "batches.create@1:status=401",
    "batches.create@1:delay_exec=500", "batches.create@1-3:stale_list=300", "batches.list@1:list_error_page=1",
    "batches.list@1:html=200", "files.create@1:reset_after", "files.create@1-2:stale_list=400",
    "files.list@1:status=500", "lines@1-2:error_rows=3",
})  # fmt: skip
# Mistral has words, pages, states and rows of its own: what each of these can go wrong by is tried.
OF_MISTRAL = frozenset({
    "batches.create@1:reset_after", "batches.create@1:status_after=500", "batches.create@1:status=401",
    "batches.create@1-2:status=429", "batches.create@1-2:billing", "batches.create@1:delay_exec=500",
    "batches.create@1-3:stale_list=300", "batches.create@1-2:results_404=2", "batches.create@1:cancel_race=full",
    "batches.create@1:expire=0.5", "batches.create@1:expire_bare", "batches.create@1:fail=invalid_request",
    "batches.create@1:empty_output", "batches.list@1:status_word=archiving", "batches.list@1:counts_null",
    "batches.list@1:empty_page", "batches.list@1:list_error_page=1", "batches.list@1:html=200",
    "files.create@1:reset_after", "files.create@1-2:stale_list=400", "lines@1-2:drop=2", "lines@1-2:error_rows=3",
    "lines@1:billing_rows=2", "lines@1:status_in_output",
})  # fmt: skip
# xAI's batches have no status and its results no file: what counters, pages, names and a cancel can go wrong by.
OF_XAI = frozenset({
    "batches.create@1:reset_after", "batches.create@1:status_after=500", "batches.create@1:status=401",
    "batches.create@1-2:status=429", "batches.create@1-2:billing", "batches.create@1:delay_exec=500",
    "batches.create@1-3:stale_list=300", "batches.create@1:cancel_race=full", "batches.create@1:fail=invalid_request",
    "batches.list@1:counts_null", "batches.list@1-2:cursor_loop", "batches.list@1:empty_page",
    "batches.list@1:list_error_page=1", "batches.list@1:html=200", "files.create@1:reset_after",
    "files.create@1-2:stale_list=400", "files.content@1-3:status=404", "lines@1-2:drop=2", "lines@1-2:error_rows=3",
    "lines@1:duplicate_differs", "lines@1:missing_id", "lines@1:lone_surrogate=2", "lines@1:filtered_rows=2",
})  # fmt: skip
SOME = {"vertex": OF_VERTEX, "together": OF_TOGETHER, "groq": OF_GROQ, "mistral": OF_MISTRAL, "xai": OF_XAI}
FIRST = next(iter(SIMULATED))  # where all are met; of what the others are tried with, the suite has each third one


def tried_of(name: str) -> list[str]:
    """Return what may go wrong at a provider: all, or what its wire alone can."""
    return [fault for fault in (*HARMLESS, *LOSSY) if IS_ALL or name not in SOME or fault in SOME[name]]


OF_FILES = ("files.create", "files.list", "files.upload", "batches.create@1:file_not_ready")
CASES = [
    pytest.param(name, fault, fault in LOSSY, id=f"{name}-{fault}")
    for name, provider in SIMULATED.items()
    for fault in every(1 if name == FIRST else 3, tried_of(name))
    if provider.has_files or not fault.startswith(OF_FILES)
]


def new_rig(provider: str, path: Path) -> Rig:
    return Rig(path, models=SIMULATED[provider].models[:1], max_requests=6, with_lens=False)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rig]:
    """For each provider, what the study comes to when nothing goes wrong."""
    rigs = {}
    for name in SIMULATED:
        rig = rigs[name] = new_rig(name, tmp_path_factory.mktemp(name))
        rig.plan()
        shutil.copytree(rig.lake, rig.path / "planned")
        rig.submit()
        rig.settle()
        rig.world.close()
    return rigs


@pytest.mark.parametrize("some", SOME.values(), ids=SOME)
def test_what_is_tried_of_a_provider_is_among_all(some: frozenset[str]) -> None:
    """A fault that is spelled otherwise in the list of all would be left out in silence."""
    assert set((*HARMLESS, *LOSSY)) >= some


def test_every_kind_of_fault_is_tried() -> None:
    """But for a batch that never ends, which has a test of its own, and for what only live calls meet."""
    of_batches = {name for name, kind in KINDS.items() if kind.ops != (Op.LIVE,)}
    assert {parse_fault(spec).kind for spec in (*HARMLESS, *LOSSY)} == of_batches - {"stuck"}


@pytest.mark.parametrize(("provider", "fault", "is_lossy"), CASES)
def test_the_promises_hold(
    provider: str, fault: str, is_lossy: bool, tmp_path: Path, undisturbed: dict[str, Rig]
) -> None:
    rig = new_rig(provider, tmp_path)
    shutil.copytree(undisturbed[provider].path / "planned", rig.lake)
    rig.world.add_fault(fault)
    rig.submit()
    for _ in range(2):
        rig.clock.advance(700)
        rig.sync()
    _, problems = schedules.settled(rig, undisturbed[provider], is_lossy=is_lossy, is_begun=True)
    rig.world.close()
    assert problems == []


def shown_and_told(provider: str, path: Path) -> Rig:
    """Return a study whose prompts have a system's words and pictures."""
    rig = new_rig(provider, path)
    with_photos(rig.study_path)
    rig.study_path.write_text(
        rig.study_path.read_text().replace("\nJudge {", "\n[[system]]\nBe fair.\n[[user]]\nJudge {")
    )
    return rig


@pytest.mark.parametrize("fault", every(2, ["batches.create@1:reset_after", "lines@1-2:error_rows=3"]))
@pytest.mark.parametrize("provider", SIMULATED)
def test_the_promises_hold_of_pictures_and_system_prompts(provider: str, fault: str, tmp_path: Path) -> None:
    """What was asked in doubt is known again by the whole of it, pictures included, and is not bought twice."""
    undisturbed, rig = shown_and_told(provider, tmp_path / "before"), shown_and_told(provider, tmp_path / "now")
    undisturbed.plan()
    undisturbed.submit()
    undisturbed.settle()
    rig.plan()
    bodies = [str(body) for (body,) in rig.rows("select body from requests", "requests")]
    assert len(bodies) == 6
    assert all(len(re.findall(r"/blob\\/[0-9a-f]{64}", body)) == 2 and "Be fair." in body for body in bodies)
    rig.world.add_fault(fault)
    rig.submit()
    _, problems = schedules.settled(rig, undisturbed, is_lossy=fault in LOSSY, is_begun=True)
    assert problems == []
    undisturbed.world.close()
    rig.world.close()


@pytest.mark.parametrize("provider", every(3, SIMULATED))
def test_a_batch_that_never_ends_can_be_cancelled_and_asked_again(provider: str, tmp_path: Path) -> None:
    rig = new_rig(provider, tmp_path)
    rig.plan()
    rig.world.add_fault("batches.create@1:stuck=in_progress")
    rig.submit()
    rig.clock.advance(10_000)
    rig.sync()
    (stuck,) = [attempt for attempt in rig.attempts() if attempt.phase is Phase.OPEN]
    cancel(rig.store(), [stuck.attempt_id], providers=rig.providers())
    for _ in range(3):
        rig.clock.advance(2_000)
        rig.sync()
    assert rig.lake_state().attempts[stuck.attempt_id].state is BatchState.CANCELLED
    retry(rig.store(), STUDY, classes=[ErrorClass.CANCELLED], confirm=lambda *_: True, providers=rig.providers())
    rig.settle()
    assert len(rig.answers()) == 12
    assert rig.violations() == []
    rig.world.close()
