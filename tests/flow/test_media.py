"""What a study shows reaches every provider byte for byte, and stands in the lake once."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from PIL import Image

from batchpond.doctor import Level, examine
from batchpond.errors import ExitCode, LakeError, StudyError
from batchpond.interop import labels
from batchpond.lake.jsonl import build_payload
from batchpond.lake.schemas import BLOBS
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.plan.media import told
from batchpond.providers import registry
from batchpond.providers.shared.dialect import PAGES_UNKNOWN, UNKNOWN_TOKENS
from batchpond.run.due import new_shards
from batchpond.run.forget import Target, forget
from batchpond.study.file import load
from batchpond_report import build as report
from batchpond_report import markdown, page
from batchpond_report.sections import answers
from batchpond_sim.world.world import body_id
from tests.rigs.adaptive_study import STUDY as ADAPTIVE
from tests.rigs.files_study import FilesRig
from tests.rigs.live_study import LIVE, Asked, live_rig, write_live_study
from tests.rigs.pictures import compressed_pdf, golden, png, shown
from tests.rigs.sim_providers import SIMULATED, one_model_each
from tests.rigs.sim_study import STUDY, Rig
from tests.rigs.stage_study import StageRig, models, stage
from tests.rigs.swept import every, sweep

SEEING = {
    "meta-llama/Llama-3.3-70B-Instruct-Turbo": "Qwen/Qwen2.5-VL-72B-Instruct",
    "openai/gpt-oss-20b": "meta-llama/llama-4-scout-17b-16e-instruct",
}
"""Models that can be shown pictures, in the place of those that rigs ask."""
PLAIN = '[[templates]]\nuse = "plain"\n'
LOOK = '''\
[[templates]]
id = "look"
text = """
Judge {TRAIT_NAME}: {TRAIT_DESCRIPTION}
The first: {SAMPLE_1.photo as media}{SAMPLE_1}
The second: {SAMPLE_2.photo as media}{SAMPLE_2}
Write {ANSWER_FIRST} or {ANSWER_SECOND}."""
'''
PICTURES = {"a": png(40, 30, 1), "b": golden()["jpeg"][0], "c": png(9, 70, 3)}
SHOWN = "select p.item_first, p.item_second, q.body, q.size_bytes from plan p join requests q using (request_id)"


def with_photos(path: Path, pictures: dict[str, bytes] | None = None) -> None:
    """Have a study show the pictures of its items."""
    pictures = PICTURES if pictures is None else pictures
    text = path.read_text()
    assert PLAIN in text
    for blind, seeing in SEEING.items():
        text = text.replace(blind, seeing)
    path.write_text(text.replace(PLAIN, LOOK))
    (source,) = path.parent.glob("*.csv")
    names = source.read_text().splitlines()[0].split(",")[:2]
    rows = [",".join([*names, "photo"])]
    (path.parent / "photos").mkdir()
    for number, (name, content) in enumerate(pictures.items()):
        (path.parent / "photos" / name).write_bytes(content)
        rows.append(f"{name},Text {name} [[quality=0.{number % 10}]],photos/{name}")
    source.write_text("\n".join(rows) + "\n")


def payload_bodies(rig: Rig) -> list[tuple[dict[str, Any], int]]:
    """Return what is sent of all attempts, by line: the body, and its size."""
    found = []
    for attempt in rig.attempts():
        for line in rig.store().payload_path(attempt.attempt_id).read_bytes().splitlines():
            row = json.loads(line)
            body = row.get("body") or row.get("params") or row["request"]
            found.append((body, len(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())))
    return found


@pytest.mark.parametrize("provider", every(3, SIMULATED))
def test_both_pictures_of_a_pair_reach_the_provider(provider: str, tmp_path: Path) -> None:
    """In the order of the pair, byte for byte; the simulator looks at them; nothing is asked again."""
    rig = Rig(tmp_path, models=one_model_each([provider]), max_requests=50)
    with_photos(rig.study_path)
    rig.plan()
    planned = rig.rows(SHOWN, "plan", "requests")
    wanted = sorted((PICTURES[str(first)], PICTURES[str(second)]) for first, second, *_ in planned)
    rig.submit()
    sent = payload_bodies(rig)
    assert sorted(tuple(shown(body)) for body, _ in sent) == wanted
    assert sorted(size for _, size in sent) == sorted(int(str(row[3])) for row in planned)
    assert not any(picture in str(row) for row in planned for picture in ("iVBOR", "/9j/"))
    rig.settle(is_begun=True)
    assert rig.rows("select outcome, count(*) from judgments group by all", "judgments") == [("decided", 6)]
    assert rig.violations() == []
    kept = rig.rows("select sha256, content from blobs", "blobs")
    assert sorted(kept) == sorted((sha256(content).hexdigest(), content) for content in PICTURES.values())
    before = rig.tree()
    rig.plan()
    assert rig.tree() == before
    assert not [one for one in examine(rig.store(), is_deep=True) if one.level not in (Level.OK, Level.NONE)]


def test_who_labels_sees_what_the_judges_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text's own picture, byte for byte, on a page; where one is too large, or in a table, a line says so."""
    rig = Rig(tmp_path, models=one_model_each(["openai"]), max_requests=50)
    with_photos(rig.study_path)
    rig.settle()
    sheet = labels.draw(rig.lake, STUDY, 3)
    for question in sheet.questions:
        for text, (picture,) in zip(question.texts, question.pictures, strict=True):
            kind, _, content = picture.partition(";base64,")
            name = text.split()[1]
            assert (kind.startswith("data:image/"), base64.b64decode(content)) == (True, PICTURES[name])
    labels.write(sheet, tmp_path / "sheet.html")
    page = (tmp_path / "sheet.html").read_text("utf-8")
    assert "img-src data:" in page
    assert all(
        base64.b64encode(PICTURES[name]).decode() in page for name in {q.texts[0].split()[1] for q in sheet.questions}
    )
    labels.write(sheet, tmp_path / "sheet.csv")
    assert "image/png: shown in a page, .html]" in (tmp_path / "sheet.csv").read_text("utf-8-sig")
    monkeypatch.setattr(labels, "PICTURE_BYTES_MAX", 10)
    for question in labels.draw(rig.lake, STUDY, 3).questions:
        assert question.pictures == ((), ())
        assert all("[not shown here: image/" in text and " bytes]" in text for text in question.texts)


def test_the_report_shows_small_pictures_beside_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were shown, in the page; Markdown, and a page where they are too large, say that they are there."""
    rig = Rig(tmp_path, models=one_model_each(["openai"]), max_requests=50)
    with_photos(rig.study_path)
    rig.settle()
    monkeypatch.setattr(report.sections, "SECTIONS", ("answers", "disagreements"))  # which alone show items
    pictures = {f"data:image/{kind};base64,{base64.b64encode(content).decode()}" for content in PICTURES.values()
                for kind in ("png", "jpeg", "gif", "webp")}  # fmt: skip
    made = report.build(rig.lake)
    drawn = re.findall(r'<img class="shown" loading="lazy" src="([^"]+)" alt="[abc], photo: image/', page.render(made))
    assert (len(drawn), {*drawn} <= pictures) == (4, True)
    assert re.search(r"\[photo: image/png [\d,]+ bytes: in the page\]", "".join(markdown.render(made)))
    monkeypatch.setattr(answers, "PICTURE_BYTES_MAX", 10)
    text = page.render(report.build(rig.lake))
    assert ('class="shown"' in text.partition("</style>")[2], "[not shown here: image/png " in text) == (False, True)


def photos(**sizes: tuple[int, int]) -> dict[str, bytes]:
    """Return smooth pictures of these sizes, as JPEG or, of an id that says so, as PNG."""
    found = {}
    for name, size in sizes.items():
        made = io.BytesIO()
        picture = Image.radial_gradient("L").resize(size).convert("RGB")
        picture.save(made, "PNG" if name == "png" else "JPEG", quality=95)
        found[name] = made.getvalue()
    return found


def addresses(text: str) -> list[bytes]:
    """Return the bytes of all pictures of a page that are of another kind than those that were shown: made for it."""
    return [base64.b64decode(one) for one in re.findall(r"data:image/webp;base64,([A-Za-z0-9+/=]+)", text)]


def test_large_pictures_stand_in_the_report_as_thumbnails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of at most 320 pixels and some kB; without Pillow small ones whole, and of larger ones their kind and size."""
    rig = Rig(tmp_path, models=one_model_each(["openai"]), max_requests=50)
    shown = photos(png=(900, 700), b=(3000, 2200), c=(2200, 3000))
    with_photos(rig.study_path, shown)
    rig.settle()
    monkeypatch.setattr(report.sections, "SECTIONS", ("answers", "disagreements"))  # which alone show items
    made = page.render(report.build(rig.lake))
    assert "[not shown here" not in made
    thumbnails = addresses(made)
    assert len(thumbnails) >= 4
    for content in thumbnails:
        found = told(content)
        assert (max(found.width or 0, found.height or 0), found.size_bytes < 30_000) == (320, True)
    monkeypatch.setitem(sys.modules, "PIL", None)
    plain = page.render(report.build(rig.lake))
    assert not addresses(plain)
    small = {name for name, content in shown.items() if len(content) <= answers.PICTURE_BYTES_MAX}
    assert small == {"png"}
    assert re.findall(r"not shown here: image/jpeg [\d,]+ bytes", plain)
    assert "data:image/png;base64," in plain


def test_who_labels_sees_a_large_picture_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large as a screen, where it would make the page too large."""
    rig = Rig(tmp_path, models=one_model_each(["openai"]), max_requests=50)
    with_photos(rig.study_path, photos(a=(3000, 2000), b=(2000, 3000), c=(300, 200)))
    rig.settle()
    monkeypatch.setattr(labels, "PICTURE_BYTES_MAX", 150_000)
    for question in labels.draw(rig.lake, STUDY, 3).questions:
        for text, (picture,) in zip(question.texts, question.pictures, strict=True):
            assert "not shown" not in text
            content = base64.b64decode(picture.partition(",")[2])
            found = told(content)
            assert len(content) <= 150_000
            assert max(found.width or 0, found.height or 0) == (300 if "Text c" in text else 2_048)


def test_live_calls_show_them_too(tmp_path: Path) -> None:
    """Each endpoint gets the pictures of each pair, and looks at them."""
    asked = [Asked(name, SEEING.get(LIVE[name].model)) for name in LIVE]
    with live_rig(tmp_path) as rig:
        path = write_live_study(rig.folder, 1, asked)
        with_photos(path)
        plan.plan_study(Store.init(rig.lake), load(path))
        rig.submit()
        report = rig.live()
        assert report.n_left == 0
        outcomes = rig.view("select outcome, count(*) from results group by all")
        assert outcomes == [("decided", len(asked))], rig.view("select error_message from responses")
        bodies = [row[0] for row in rig.rows("select body from requests")]
        assert all("/blob" in body for body in bodies)
        ledger = rig.simulator.world.ledger
        assert not {
            body_id(f"/openai/v1{path}", body.encode()) for body in bodies for path in ("/chat/completions",)
        } & {*ledger.live_bodies}
        assert ledger.live.n_asked == len(asked)


def test_files_hold_them_too(tmp_path: Path) -> None:
    """Whoever answers a folder needs nothing but its files."""
    rig = FilesRig(tmp_path, models=("gpt-4.1-mini",), max_requests=50)
    with_photos(rig.study_path)
    rig.plan()
    rig.submit()
    rig.sync()
    (path,) = rig.outbox.glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert {picture for line in lines for picture in shown(line["body"])} == {*PICTURES.values()}
    rig.work()
    rig.sync()
    assert rig.rows("select distinct outcome, count(*) from judgments group by all", "judgments") == [("decided", 6)]


def test_a_picture_that_is_none_is_refused_by_the_simulator(tmp_path: Path) -> None:
    """Its check can fail: bytes of another kind than the body says."""
    rig = Rig(tmp_path, models=one_model_each(["openai"]), max_requests=50)
    with_photos(rig.study_path)
    rig.plan()
    (path,) = rig.store().files("requests")
    table = pq.read_table(path)
    bodies = [body.replace("image/png", "image/webp") for body in table["body"].to_pylist()]
    names = table.schema.names
    pq.write_table(table.set_column(names.index("body"), "body", [bodies]), path)
    shutil.rmtree(rig.lake / "_manifests")
    rig.settle(is_begun=True)
    (found,) = rig.rows("select distinct error_message from responses", "responses")
    assert "does not match the provided media type image/webp" in str(found[0])


def test_dying_anywhere_in_plan_leaves_nothing_half(tmp_path: Path) -> None:
    """Whatever is there names only what is there, and the next plan makes the lake that an undisturbed one makes."""
    whole = Rig(tmp_path / "whole", max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(whole.study_path)
    whole.plan()
    named = "select unnest(regexp_extract_all(body, 'blob./([0-9a-f]{64})', 1)) from requests"
    n_died = 0
    for step in every(3, range(200)):
        rig = Rig(tmp_path / str(step), max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
        with_photos(rig.study_path)
        rig.crash_in = step
        if rig.survive(rig.plan):
            break
        n_died += 1
        if (rig.lake / "batchpond.json").exists() and (rig.lake / ".secret").exists():
            blobs = {row[0] for row in rig.rows("select sha256 from blobs", "blobs")}
            assert {row[0] for row in rig.rows(named, "requests")} <= blobs
        rig.plan()
        tables = ("blobs", "requests", "plan", "items", "studies")
        for name in tables:
            assert sorted(map(str, rig.rows(f"from {name}", name))) == sorted(
                map(str, whole.rows(f"from {name}", name))
            )
    assert n_died > 5


def test_a_lost_blob_sends_nothing(tmp_path: Path) -> None:
    """Neither batch nor upload."""
    rig = Rig(tmp_path, models=one_model_each(["openai"]), max_requests=50)
    with_photos(rig.study_path)
    rig.plan()
    for path in rig.store().files("blobs"):
        path.unlink()
    with pytest.raises(LakeError):
        rig.submit()
    assert not rig.world.ledger.batches
    assert rig.wire.n_create_posts == 0


def test_many_pairs_over_few_pictures_make_a_small_lake(tmp_path: Path) -> None:
    """10,000 pairs over 100 pictures: less than 1.2 times the pictures."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), max_requests=50_000, with_lens=False)
    pictures = {f"p{n:03}": png(260, 200, n) for n in range(100)}
    with_photos(rig.study_path, pictures)
    rig.plan()
    n_pairs = rig.rows("select count(*) from plan", "plan")[0][0]
    assert n_pairs == 9_900
    n_bytes = sum(map(len, pictures.values()))
    in_lake = sum(path.stat().st_size for path in rig.lake.rglob("*") if path.is_file())
    assert in_lake < 1.2 * n_bytes, f"{in_lake / n_bytes:.3f}"
    # Shards are cut by what is sent: 200 MB at OpenAI, of 415 kB a line.
    state = rig.lake_state()
    version = state.current_versions[STUDY]
    shards = [new.event for new in new_shards(rig.store(), state, STUDY, version, None)]
    assert sum(shard.n_requests for shard in shards) == 9_900
    assert all(shard.size_bytes + 256 * shard.n_requests <= 200_000_000 for shard in shards)
    assert len(shards) == -(-sum(shard.size_bytes for shard in shards) // 200_000_000)


_MEASURED = """
import resource, sys
from pathlib import Path
from batchpond.lake.jsonl import build_payload
from batchpond.lake.store import Store
from batchpond.lake.attempts import fold
from batchpond.lake.events import read
from batchpond.providers import registry
from batchpond.providers.shared.dialect import PAGES_UNKNOWN, UNKNOWN_TOKENS
store = Store.open(Path(sys.argv[1]))
shard = next(iter(fold(read(store)).shards.values()))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
built = build_payload(store, registry.module(shard.provider), shard, "a" * 26)
print(built.size_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@sweep
def test_a_payload_is_written_in_bounded_memory(tmp_path: Path) -> None:
    """It has many times the size of what writing it holds: a line, and the few pictures that were last read."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), max_requests=50_000, with_lens=False)
    with_photos(rig.study_path, {f"p{n:02}": png(1_000, 400, n) for n in range(12)})
    rig.plan()
    rig.submit()
    for path in (rig.lake / "_payloads").iterdir():
        path.unlink()
    run = [sys.executable, "-c", _MEASURED, os.fspath(rig.lake)]
    said = subprocess.run(run, capture_output=True, text=True, check=True, timeout=120)
    size_bytes, grown_kib = map(int, said.stdout.split())
    assert size_bytes > 190_000_000
    assert grown_kib * 1024 < 120_000_000, f"{grown_kib:,} KiB for {size_bytes:,} bytes"


def test_forgetting_takes_the_pictures_that_nobody_else_shows(tmp_path: Path) -> None:
    """An item's own goes with it; one that another item shows too stays until that is forgotten."""
    rig = Rig(tmp_path, max_requests=4, models=one_model_each(["openai"]))
    with_photos(rig.study_path, {**PICTURES, "d": PICTURES["a"], "e": PICTURES["c"]})
    rig.settle()

    def left(target: Target) -> set[bytes]:
        with rig._points():
            report = forget(rig.store(), target, providers=rig.providers())
        assert report.exit_code is ExitCode.DONE
        return {row[0] for row in rig.rows("select content from blobs", "blobs")}  # type: ignore[misc]

    assert left(Target(item="b")) == {PICTURES["a"], PICTURES["c"]}
    assert left(Target(item="a")) == {PICTURES["a"], PICTURES["c"]}
    assert left(Target(item="d")) == {PICTURES["c"]}
    assert left(Target(study=STUDY)) == set()
    found = [path.read_bytes() for path in rig.lake.rglob("*") if path.is_file()]
    marks = [*PICTURES.values(), *(base64.b64encode(one)[:40] for one in PICTURES.values())]
    assert not [mark for mark in marks for content in found if mark in content]
    assert not [one for one in examine(rig.store(), is_deep=True) if one.level not in (Level.OK, Level.NONE)]


def test_a_lost_lake_is_made_again_of_the_same_study(tmp_path: Path) -> None:
    """Its requests have the ids that they had, so that what was bought is found."""
    rig = Rig(tmp_path, max_requests=4, models=one_model_each(["openai", "anthropic", "gemini"]), with_lens=False)
    with_photos(rig.study_path)
    rig.settle()
    answers, n_posts = rig.answers(), rig.wire.n_create_posts
    shutil.rmtree(rig.lake)
    rig.lake_seed += 1
    rig.plan()
    rig.recover()
    assert rig.answers() == answers
    assert rig.wire.n_create_posts == n_posts


def test_another_picture_under_the_same_name_is_another_question(tmp_path: Path) -> None:
    """And the same picture under another name is the same."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(rig.study_path)
    rig.plan()
    ids = {row[0] for row in rig.rows("select request_id from requests", "requests")}
    photos = rig.study_path.parent / "photos"
    (photos / "b").rename(photos / "other")
    items = rig.study_path.parent / "items.csv"
    items.write_text(items.read_text().replace("photos/b", "photos/other"))
    rig.plan()
    assert {row[0] for row in rig.rows("select request_id from requests", "requests")} == ids
    (photos / "other").write_bytes(png(40, 30, 99))
    rig.plan()
    assert len({row[0] for row in rig.rows("select request_id from requests", "requests")} - ids) == 4


def test_pictures_that_were_made_smaller_are_what_is_shown_kept_and_priced(tmp_path: Path) -> None:
    """Planned again after the lens and the shrunk files could be made otherwise, nothing is asked anew."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(rig.study_path)
    rig.study_path.write_text(rig.study_path.read_text().replace("[items]\n", "[items]\nmedia_max_px = 32\n"))
    assert "media_max_px" in rig.study_path.read_text()
    rig.plan()
    before = rig.rows("select request_id from requests", "requests")
    rig.submit()
    bodies = payload_bodies(rig)
    sizes = {(found.width, found.height) for body, _ in bodies for found in map(told, shown(body))}
    assert max(max(size) for size in sizes) == 32
    n_kept = len(rig.rows("select sha256 from blobs", "blobs"))
    assert n_kept == len(PICTURES)
    rig.plan()
    assert rig.rows("select request_id from requests", "requests") == before
    assert len(rig.rows("select sha256 from blobs", "blobs")) == n_kept


def test_adaptive_rounds_show_them_too(tmp_path: Path) -> None:
    """From what the lake keeps of the items: the pictures are gone by then."""
    text = ADAPTIVE.format(
        seed=1, select="adaptive", pairs="rounds = 2\nfirst_per_item = 2\nstop_stale = false", models=""
    )
    rig = StageRig(tmp_path / "rig", toml=text + models("gpt-4.1-mini").replace("stages.", ""))
    for path in rig.study_path.parent.glob("*.csv"):
        path.unlink()
    (rig.study_path.parent / "essays.csv").write_text("id,text\n")
    source = next(line for line in text.splitlines() if line.startswith("path = "))
    rig.study_path.write_text(rig.study_path.read_text().replace(source, 'path = "essays.csv"'))
    with_photos(rig.study_path, {f"p{n}": png(8, 8, n) for n in range(8)})
    rig.plan()
    shutil.rmtree(rig.study_path.parent / "photos")
    rig.submit()
    rig.finish()
    found = rig.rows(
        "select round_no, count(*), min(length(body) - length(replace(body, '/blob', ''))) from plan"
        " join requests using (request_id) group by all order by all", "plan", "requests",
    )  # fmt: skip
    assert [row[0] for row in found] == [1, 2]
    assert {row[2] for row in found} == {2 * len("/blob")}


JUDGE = """---[[stages.templates]]
id = "j"
text = '''
{#item.scan}
Seen: {item.scan as media}
{/item.scan}
Said: {OUTPUT}
Rate {STATEMENT} from {SCALE_MIN} to {SCALE_MAX}: {ANSWER_FORMAT}'''
[[stages.rubrics]]
id = "true"
name = "True"
description = "It is true."
"""


def test_later_stages_and_rounds_show_what_their_items_do(tmp_path: Path) -> None:
    """An answer about a picture is judged beside it, from the lake alone: the file is gone by then."""
    rows = [{"id": name, "question": f"What is {name}?", "scan": content} for name, content in PICTURES.items()]
    describe = '---[[stages.templates]]\nid = "d"\ntext = "{INPUT} {item.scan as media}"\n' + models("gpt-4.1-mini")
    head, items = 'study = "demo"\n', 'path = "items.parquet"\ntext = "question"'
    toml = head + stage("describe", "generation", items, describe)
    toml += stage("judge", "likert", 'stage = "describe"', JUDGE + models("gpt-4o"))
    rig = StageRig(tmp_path / "rig", toml=toml)
    pl.DataFrame(rows).write_parquet(rig.study_path.parent / "items.parquet")
    rig.plan()
    (rig.study_path.parent / "items.parquet").unlink()
    rig.submit()
    for _ in range(4):
        rig.clock.advance(1_000)
        rig.sync()
    found = rig.rows("select stage, body from plan join requests using (request_id) order by all", "plan", "requests")
    assert [str(row[0]) for row in found] == ["describe"] * 3 + ["judge"] * 3
    assert all(str(row[1]).count("/blob") == 1 for row in found)
    assert rig.rows("select count(*) from blobs", "blobs") == [(3,)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("gpt-4.1-mini", "gpt-3.5-turbo-0125"), "takes neither pictures nor documents"),
        (("photos/b", "photos/none"), "No such file"),
        (("photos/b", "items.csv"), "it is no PNG, JPEG, WebP, GIF or PDF"),
        (("photos/b\n", "\n"), "asks for {SAMPLE_"),
        (("{SAMPLE_1.photo as media}{SAMPLE_1}", "nothing"), "the template lacks {SAMPLE_1}"),
    ],
)
def test_what_cannot_be_shown_is_refused_at_plan_and_nothing_is_made(
    tmp_path: Path, change: tuple[str, str], why: str
) -> None:
    """No blob, no request, no version."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(rig.study_path)
    for path in (rig.study_path, rig.study_path.parent / "items.csv"):
        path.write_text(path.read_text().replace(*change))
    with pytest.raises(StudyError) as caught:
        rig.plan()
    assert why in f"{caught.value.message} {caught.value.hint}"
    assert not [path for name in (BLOBS.name, "requests", "plan", "studies") for path in rig.store().files(name)]
    assert not [*(rig.lake / "_tmp").iterdir()]


def test_an_address_goes_to_the_provider_as_it_is(tmp_path: Path) -> None:
    """And is refused where none is taken."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(rig.study_path)
    items = rig.study_path.parent / "items.csv"
    items.write_text(items.read_text().replace("photos/", "https://pictures.example/"))
    rig.plan()
    bodies = [str(row[0]) for row in rig.rows("select body from requests", "requests")]
    assert all('{"image_url":{"url":"https://pictures.example/' in body for body in bodies)
    assert rig.rows("select count(*) from blobs", "blobs") == [(0,)]
    text = rig.study_path.read_text()
    rig.study_path.write_text(text.replace('"openai"', '"gemini"').replace("gpt-4.1-mini", "gemini-2.5-flash"))
    with pytest.raises(StudyError, match="takes no addresses of pictures"):
        rig.plan()


def test_the_address_of_a_document_is_sent_as_one_or_refused(tmp_path: Path) -> None:
    """Where an endpoint takes none the plan stops: it would have gone there as a picture."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(rig.study_path)
    items = rig.study_path.parent / "items.csv"
    items.write_text(re.sub(r"photos/(\w+)", r"https://papers.example/\1.PDF?v=2", items.read_text()))
    with pytest.raises(
        StudyError, match=r"openai/gpt-4.1-mini takes no addresses of documents at /v1/chat/completions"
    ):
        rig.plan()
    text = rig.study_path.read_text()
    rig.study_path.write_text(text.replace('"gpt-4.1-mini"\n', '"gpt-4.1-mini"\nendpoint = "responses"\n'))
    rig.plan()
    bodies = [str(row[0]) for row in rig.rows("select body from requests", "requests")]
    assert all(body.count('{"file_url":"https://papers.example/') == 2 for body in bodies)


def test_build_payload_is_the_same_every_time(tmp_path: Path) -> None:
    """A payload that was lost is built again byte for byte."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    with_photos(rig.study_path)
    rig.plan()
    rig.submit()
    intent = rig.only().intent
    rig.store().payload_path(rig.only().attempt_id).unlink()
    built = build_payload(rig.store(), registry.module("openai"), intent, rig.only().attempt_id)
    assert built.sha256 == intent.sha256


def test_a_documents_price_is_that_of_its_pages_and_plan_says_where_nobody_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a document whose page objects are compressed; without the reader as very many, with what brings it."""
    reports = []
    for folder in ("read", "unread"):
        rig = Rig(tmp_path / folder, models=one_model_each(["anthropic"]), max_requests=50, with_lens=False)
        with_photos(rig.study_path, {name: compressed_pdf(n) for n, name in enumerate("abc", 1)})
        reports.append(plan.plan_file(rig.lake, rig.study_path))
        monkeypatch.setitem(sys.modules, "pypdf", None)
    read, unread = reports
    of_texts = read.estimated_input_tokens - 4 * 4_568 * (1 + 2 + 3)
    assert 0 < of_texts < 2_000
    assert not [note for note in read.notes if "document" in note]
    assert unread.estimated_input_tokens - of_texts == 4 * 3 * PAGES_UNKNOWN * UNKNOWN_TOKENS
    (note,) = (note for note in unread.notes if "document" in note)
    assert note.startswith("3 documents: nobody can tell how many pages they have")
    assert "pip install 'batchpond[images]'" in note


def test_where_nobody_says_what_pictures_cost_plan_says_so_and_never_counts_them_as_nothing(tmp_path: Path) -> None:
    """At Groq; a model of Mistral's whose arithmetic is documented is counted by that."""
    known = "mistral-small-2506"
    rig = Rig(tmp_path, models=one_model_each(["groq"]), max_requests=50, with_lens=False)
    with_photos(rig.study_path, {name: png(56, 28, n) for n, name in enumerate("abc")})
    rig.study_path.write_text(f'{rig.study_path.read_text()}\n[[models]]\nprovider = "mistral"\nmodel = "{known}"\n')
    told = plan.plan_file(rig.lake, rig.study_path)
    (note,) = (note for note in told.notes if "pictures" in note)
    assert note.startswith(
        "groq/meta-llama/llama-4-scout-17b-16e-instruct: it is not documented how many tokens 3 of 3"
    )
    n_tokens = {cell.provider: cell.estimated_input_tokens for cell in told.cells}
    n_shown = 2 * next(cell.n_requests for cell in told.cells if cell.provider == "groq")
    assert n_tokens["groq"] > n_shown * UNKNOWN_TOKENS
    assert n_tokens["groq"] - n_tokens["mistral"] == n_shown * (UNKNOWN_TOKENS - (2 * 1 + 1))
