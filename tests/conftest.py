"""Settings of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.rigs.swept import EVERYTHING, IS_ALL, sweep

# Machines that run the suite are shared and slow at times: a deadline would test the machine.
settings.register_profile("batchpond", deadline=None, max_examples=100 if IS_ALL else 50)
settings.register_profile("dev", deadline=None, max_examples=25)
settings.load_profile("batchpond")

COLLECT_ABOVE = 50_000
# Ten times what the longest takes on a busy machine: what hangs is a failure, which says where, and the others go on.
DEADLINE_S = 600

# The files that take longest go first, so that no processor waits for another at the end.
LONGEST = (
    "test_contract", "test_guides", "test_live_run", "test_live_refusals", "test_schedules", "test_kill_sweep",
    "test_bought_rounds",
    "test_stages_changes", "test_refused_creates", "test_stages_rounds", "test_report", "test_stages_pressure",
    "test_stages_inputs", "test_old_lakes", "test_bought", "test_demo", "test_sql_cases", "test_signals",
    "test_live_kills", "test_damaged_files", "test_truthful_lake", "test_narrow_machines", "test_stages_kills",
    "test_claims", "test_core_grain", "test_lens", "test_adopt", "test_adopt_own", "test_adaptive_rounds",
    "test_files_mode", "test_secrets", "test_style", "test_retry", "test_stages_export", "test_stages_screening",
    "test_cli_flow", "test_cli", "test_three_providers", "test_recover",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of files where they are shared out to several processes, which is by their number of tests."""
    config.addinivalue_line("markers", f"{sweep.name}: tried where {EVERYTHING} is set, as a sweep does, and not else")
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what sweeps alone try, and put the longest files first; the order within a file stays."""
    swept = [item for item in items if not IS_ALL and item.get_closest_marker(sweep.name)]
    config.hook.pytest_deselected(items=swept)
    items[:] = [item for item in items if IS_ALL or not item.get_closest_marker(sweep.name)]
    for item in [] if IS_ALL else items:
        item.add_marker(pytest.mark.timeout(DEADLINE_S, method="signal"))
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, and no longer among twelve thousand tests, again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_ABOVE)


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the programs that tests start share what they compile, outside the checkout.

    Where bytecode is not written, each of several hundred processes compiles the whole package again, which takes
    longer than most of them run.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONDONTWRITEBYTECODE" in os.environ:
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", os.fspath(tmp_path_factory.mktemp("pycache")))
        yield
