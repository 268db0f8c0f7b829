"""The study that the simulated user has: a few items, one rubric, one template, the models asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.rigs.sim_providers import SIMULATED, provider_of

STUDY = "demo"
N_ITEMS = 4
MODELS = SIMULATED["openai"].models

STUDY_TOML = """
study = "demo"
seed = 3

[items]
path = "items.csv"
id = "id"
text = "text"

[pairs]
order = "random"
reverse = 1.0

[shards]
max_requests = {max_requests}

[[rubrics]]
use = "overall_quality"

[[templates]]
use = "plain"
"""
MODEL_TOML = """
[[models]]
provider = "{provider}"
model = "{model}"
max_output_tokens = 200
"""


def write_study(folder: Path, *, max_requests: int = 5, n_items: int = N_ITEMS, models: Sequence[str] = MODELS) -> Path:
    """Write the study and its items; returns the path of study.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"i{n},text number {n} [[quality=0.{n % 10}]]" for n in range(1, n_items + 1)]
    (folder / "items.csv").write_text("\n".join(["id,text", *rows]) + "\n")
    path = folder / "study.toml"
    head = STUDY_TOML.format(max_requests=max_requests)
    path.write_text(head + "".join(MODEL_TOML.format(provider=provider_of(model), model=model) for model in models))
    return path
