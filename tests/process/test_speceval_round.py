"""SpecEval's folders come back under the names that its scripts look for."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rigs.program import Program


def test_a_spec_keeps_its_name_whatever_the_study_is_called(tmp_path: Path) -> None:
    """Mission defect D10: `--study` names the study; `export --layout speceval` still writes `rankings/spec_openai`."""
    program = Program(tmp_path, "http://127.0.0.1:9/v1")
    for model in ("a", "b"):
        said = [{"input_text": "q", "output_text": f"{model} on q", "batch_id": "x", "original_index": 0}]
        put(tmp_path, f"data/generations/{model}/20250401_120000/results/s1.json", said)
    judge = {"provider": "openai", "model_name": "j-1"}
    about = {"ranking_judge_model_info": judge, "model_a": "a", "model_b": "b", "statement_id": "s1"}
    ranked = {"input": "q", "output_a": "a on q", "output_b": "b on q", "rank": 1, "raw_judge_response": "Model: A"}
    place = "rankings/spec_openai/judge_j-1/axb/results/s1.json"
    put(tmp_path, f"data/{place}", {"metadata": about, "rankings": [ranked]})
    for options, study in ((("--study", "old"), "old"), ((), "speceval-openai")):
        program.lake = f"lake-{study}"
        done = program.run("import", "speceval", "data", *options)
        assert done.returncode == 0, done.stderr
        assert program.rows("select study from imported_judgments") == [{"study": study}]
        out = tmp_path / f"out-{study}"
        assert program.run("export", str(out), "--layout", "speceval").returncode == 0
        metadata = json.loads((out / place).read_text())["metadata"]
        assert (metadata["org_spec_name"], metadata["study"]) == ("openai", study)
        assert [path.name for path in (out / "rankings").iterdir()] == ["spec_openai"]
        program.lake = f"lake-{study}-again"
        assert program.run("import", "speceval", str(out)).returncode == 0
        assert program.rows("select study from imported_judgments") == [{"study": study}]


def put(folder: Path, name: str, document: object) -> None:
    """Write a JSON file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
