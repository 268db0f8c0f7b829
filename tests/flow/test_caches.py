"""What every request of a template begins with is marked for Anthropic's cache where a study says so, and priced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anthropic.types import TextBlockParam
from pydantic import TypeAdapter

from batchpond.errors import StudyError, UsageError
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.plan.report import PlanReport
from batchpond.study.file import load
from tests.rigs.live_study import Asked, live_rig, write_live_study
from tests.rigs.sim_providers import environ
from tests.rigs.sim_study import Rig

MODEL = "claude-haiku-4-5"
PLAIN = '[[templates]]\nuse = "plain"\n'
RUBRIC = "A judge is fair. " * 400
JUDGE = f'''\
[[templates]]
id = "long"
text = """
[[system]]
{{TRAIT_NAME}}: {{TRAIT_DESCRIPTION}}
{RUBRIC}
[[user]]
1: {{SAMPLE_1}}
2: {{SAMPLE_2}}
Write {{ANSWER_FIRST}} or {{ANSWER_SECOND}}."""
'''
USD_IN, USD_OUT = 0.5e-6, 2.5e-6  # a token of claude-haiku-4-5 in a batch; a twentieth of input is read back for
SHARE_READ = 0.1
OUT_MAX = 200  # tokens, as the rig's study says
WRITES = {"5m": 1.25, "1h": 2.0}
COUNTS = "input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd"


def marked(path: Path, cache: str | None) -> None:
    """Ask by the long template, its system prompt marked to be kept for so long."""
    text = path.read_text().replace(PLAIN, JUDGE)
    path.write_text(text + (f'cache = "{cache}"\n' if cache else ""))


def rig_of(path: Path, cache: str | None, model: str = MODEL) -> tuple[Rig, PlanReport]:
    rig = Rig(path, models=(model,), max_requests=50, with_lens=False)
    marked(rig.study_path, cache)
    return rig, plan.plan_study(rig.store(), load(rig.study_path))


@pytest.mark.parametrize("cache", WRITES)
def test_marks_are_put_in_on_the_way_and_what_the_cache_did_is_counted_and_priced(tmp_path: Path, cache: str) -> None:
    """Requests and their ids are those of the study without marks; the bill is what writes, reads and the rest cost."""
    plain, said_plain = rig_of(tmp_path / "plain", None)
    rig, said = rig_of(tmp_path / "marked", cache)
    kept = "select request_id, body from requests order by all"
    assert rig.rows(kept, "requests") == plain.rows(kept, "requests")
    assert said.study_version != said_plain.study_version
    assert said.cost.worst_usd is not None
    assert said_plain.cost.worst_usd is not None
    out_usd = said.n_requests * OUT_MAX * USD_OUT
    assert said.cost.worst_usd == pytest.approx((said_plain.cost.worst_usd - out_usd) * WRITES[cache] + out_usd)

    rig.submit()
    payload = rig.store().payload_path(rig.only().attempt_id)
    for line in payload.read_bytes().splitlines():
        params = json.loads(line)["params"]
        (block,) = params["system"]
        assert TypeAdapter(TextBlockParam).validate_python(block) == block
        assert block["text"].endswith(RUBRIC)
        assert block["cache_control"] == {"type": "ephemeral", "ttl": cache}
    rig.settle()
    rows = [tuple(map(float, map(str, row))) for row in rig.rows(f"select {COUNTS} from responses", "responses")]
    assert len(rows) == 12
    assert sum(written > 0 for _, _, written, _, _ in rows) == 1, "the first writes, the others read"
    for n_in, read, written, out, usd in rows:
        assert read + written > 1_000
        wanted = (n_in - read - written + SHARE_READ * read + WRITES[cache] * written) * USD_IN + out * USD_OUT
        assert usd == pytest.approx(wanted)
    assert rig.violations() == []


def test_what_the_cache_read_is_foreseen_of_what_is_asked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From ten answers on, by the share that it had of their input: a part of what is said without it."""
    for name, value in environ("key").items():  # simulated answers say what a simulator's will use
        monkeypatch.setenv(name, value)
    rig, before = rig_of(tmp_path, "1h")
    rig.submit()
    rig.settle()
    sums = "sum(input_tokens), sum(cached_tokens), sum(output_tokens)"
    ((n_in, read, out),) = [map(float, map(str, row)) for row in rig.rows(f"select {sums} from responses", "responses")]
    (source,) = rig.study_path.parent.glob("*.csv")
    lines = source.read_text("utf-8").splitlines()
    source.write_text("\n".join([*lines, *(f"new{line}" for line in lines[1:])]) + "\n", "utf-8")
    told = plan.plan_study(rig.store(), load(rig.study_path))
    assert told.n_answered_already == 12
    assert told.n_to_ask > 3
    wanted = ((n_in - read + SHARE_READ * read) * USD_IN + out * USD_OUT) / 12 * told.n_to_ask
    assert told.cost.expected_usd == pytest.approx(wanted, rel=0.02)
    assert told.cost.expected_usd < (before.cost.expected_usd or 0) / 12 * told.n_to_ask / 2


def test_a_payload_that_is_built_again_has_the_same_marks(tmp_path: Path) -> None:
    """A create that was refused is sent again, of a payload that somebody deleted in between."""
    rig, _ = rig_of(tmp_path, "1h")
    rig.world.add_fault("batches.create@1:status=429")
    rig.submit()
    payload = rig.store().payload_path(rig.only().attempt_id)
    before = payload.read_bytes()
    payload.unlink()
    rig.clock.advance(4_000)
    rig.sync()
    assert payload.read_bytes() == before
    rig.settle()
    assert rig.billed()[0] == 12
    assert rig.violations() == []


def test_live_calls_are_marked_too(tmp_path: Path) -> None:
    with live_rig(tmp_path) as rig:
        path = write_live_study(rig.folder, 3, [Asked("anthropic")])
        text = path.read_text()
        assert PLAIN in text
        marked(path, "5m")
        plan.plan_study(Store.init(rig.lake), load(path))
        rig.submit()
        assert rig.live().n_left == 0
        rig.sync()
        counts = rig.view("select custom_id, cache_write_tokens from responses")
    assert len(counts) == 3
    assert all(written > 1_000 for _, written in counts), "the simulator keeps nothing between live calls"


def test_a_provider_without_marks_is_refused_and_a_template_without_a_system_is_told(tmp_path: Path) -> None:
    with pytest.raises((StudyError, UsageError), match="openai keeps nothing that is marked for '1h'"):
        rig_of(tmp_path / "other", "1h", "gpt-4.1-mini")
    with pytest.raises((StudyError, UsageError), match="anthropic keeps nothing that is marked for '1d'") as refused:
        rig_of(tmp_path / "long", "1d")
    assert refused.value.hint == "it keeps for: 5m, 1h"
    rig = Rig(tmp_path / "bare", models=(MODEL,), with_lens=False)
    rig.study_path.write_text(rig.study_path.read_text() + 'cache = "5m"\n')
    notes = plan.plan_study(rig.store(), load(rig.study_path)).notes
    assert "template plain has no [[system]], so that nothing of it is marked for a cache" in notes


@pytest.mark.parametrize(
    ("model", "n_tokens", "least"),
    [("claude-haiku-4-5", 3_900, 4_096), ("claude-opus-4-7", 1_900, 2_048), ("claude-sonnet-4-6", 900, 1_024),
     ("claude-opus-5", 380, 512), ("claude-haiku-5-5", 380, 512), ("claude-fable-5-2", 10, 0)],
)  # fmt: skip
def test_a_system_prompt_that_is_too_short_to_be_kept_is_told(
    tmp_path: Path, model: str, n_tokens: int, least: int
) -> None:
    """By the least that each model keeps, where its provider says one; what is long enough is not spoken of."""
    notes = {}
    for n in (n_tokens, 2 * n_tokens):
        rig = Rig(tmp_path / str(n), models=(model,), with_lens=False)
        marked(rig.study_path, "1h")
        rig.study_path.write_text(rig.study_path.read_text().replace(RUBRIC, "word" * n))
        told = plan.plan_study(rig.store(), load(rig.study_path)).notes
        notes[n] = [note for note in told if "shorter than" in note]
    assert notes[2 * n_tokens] == []
    assert len(notes[n_tokens]) == bool(least)
    assert all(f"{model} keeps nothing in a cache that is shorter than {least:,}" in note for note in notes[n_tokens])
