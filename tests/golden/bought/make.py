"""Write down what every study of `studies/` asks. Run once, on commit cc06c86, from the project's folder:

    python -m tests.golden.bought.make

What it wrote is what people have bought: request ids, bodies and the ids that their answers come back with. A later
version that makes others would buy all of it a second time. So do not run it again to make a red test green: it is
run for a new study alone, by name.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.golden.bought import record

# What opens later rounds is brought to its end; of most others the plan says all, and some show what is sent.
FINISHED = (
    "adaptive", "adaptive_top", "pressure_everywhere", "stages_inputs_by_hand", "stages_inputs",
    "stages_pairs_of_pairs", "stages_ratings", "stages_screening", "stages_sources", "stages_structured",
)  # fmt: skip
SUBMITTED = (
    "init_stages",
    "init_study",
    "repeats",
    "shards_per_cell",
    "simulated_user",
    "stages_tiers",
    "task_ranking",
)
THROUGH_FILES = ("files_mode",)


def how(name: str) -> str:
    """Return how far a study is brought."""
    if name in THROUGH_FILES:
        return "files"
    if name in FINISHED:
        return "finish"
    return "submit" if name in SUBMITTED else "plan"


def main(names: list[str]) -> None:
    """Write the record of the studies named, of all without names."""
    names = names or sorted(path.stem for path in record.STUDIES.glob("*.toml"))
    record.EXPECTED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, record.desk(Path(scratch), how) as asked:
        for name in names:
            text = json.dumps(asked(name), indent=1, ensure_ascii=False)
            (record.EXPECTED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
