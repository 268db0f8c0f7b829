"""What plan says that pictures will be in tokens is what providers count, by their own arithmetic, of each model."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from batchpond.plan.verb import plan_study
from batchpond.study import file
from batchpond_sim.world.world import Settings
from tests.flow.test_media import photos, with_photos
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import LATENCY_S, Rig
from tests.rigs.stage_study import StageRig, models, stage, use
from tests.rigs.swept import every

SIZES = {"a": (900, 700), "b": (3000, 2200), "c": (1100, 2600), "d": (320, 240)}
COUNTED = {
    "openai": ("gpt-4o", "gpt-4.1-mini", "gpt-5.4-nano"),
    "anthropic": ("claude-haiku-4-5", "claude-opus-4-8"),
    "gemini": ("gemini-2.5-flash-lite", "gemini-3.5-flash"),
    "vertex": ("gemini-2.5-flash-lite",),
    "together": ("Qwen/Qwen2.5-VL-72B-Instruct",),
    "mistral": ("ministral-8b-2512",),
}
"""Models whose arithmetic is documented."""
USED = "select request_model, sum(input_tokens) from responses join requests using (request_id) group by all"


@pytest.mark.parametrize("provider", every(3, sorted(COUNTED)))
def test_what_a_provider_counts_is_what_plan_said(provider: str, tmp_path: Path) -> None:
    """Within a tenth, for pictures small and large, wide and high."""
    known = {name: SIMULATED[name].models for name in SIMULATED}
    rig = Rig(tmp_path, models=known[provider][:1], max_requests=50)
    with_photos(rig.study_path, photos(**SIZES))
    text = rig.study_path.read_text("utf-8")
    head, sep, model = text.rpartition("[[models]]")
    lines = [line for line in model.splitlines() if "=" in line]
    assert sum(line.startswith("model =") for line in lines) == 1
    others = ("\n".join(f'model = "{name}"' if line.startswith("model =") else line for line in lines)
              for name in COUNTED[provider])  # fmt: skip
    rig.study_path.write_text(head + "".join(f"{sep}\n{one}\n" for one in others), "utf-8")
    report = plan_study(rig.store(), file.load(rig.study_path))
    foretold = {cell.request_model: cell.estimated_input_tokens for cell in report.cells}
    rig.settle()
    used = {str(model): int(str(n)) for model, n in rig.rows(USED, "responses", "requests")}
    assert used == {model: pytest.approx(n, rel=0.1) for model, n in foretold.items()}
    assert min(foretold.values()) > 12 * 500


def test_pictures_of_a_stage_that_waits_are_foretold_for_each_model(tmp_path: Path) -> None:
    """Of those that its items have, by each model's own rule: they were counted as text, or as the dearest counts."""
    judged = '[[stages.rubrics]]\nid = "r"\nname = "R"\ndescription = "It fits."\n'
    shown = "{STATEMENT} {item.photo as media} {OUTPUT}\n{ANSWER_FORMAT}"
    look = f'[[stages.templates]]\nid = "look"\ntext = """\n{shown}"""\n'
    short = "expected_output_tokens = 40\n"
    asked = "gpt-4o", "gpt-4.1-mini", "gpt-5.4-nano"
    text = (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "seen.csv"', f"{short}---{use('question')}{models('gpt-4o')}")
        + stage("judge", "compliance", 'stage = "answers"', f"---{judged}{look}{models(*asked)}")
    )
    rig = StageRig(tmp_path / "rig", toml=text, settings=Settings(seed=1, latency_s=LATENCY_S))
    folder = rig.study_path.parent
    for name, content in photos(**SIZES).items():
        (folder / name).write_bytes(content)
    (folder / "seen.csv").write_text("id,text,photo\n" + "".join(f"{name},What is it?,{name}\n" for name in SIZES))
    foretold = next(one for one in rig.planned().stages if one.name == "judge")
    rig.submit()
    rig.finish()
    used: dict[str, int] = defaultdict(int)
    for row in rig.ask("select request_model, input_tokens from results where stage = 'judge'"):
        used[row["request_model"]] += row["input_tokens"]
    assert foretold.n_requests == 12
    assert foretold.input_tokens == pytest.approx(sum(used.values()), rel=0.1)
    assert max(used.values()) < foretold.input_tokens / 2
