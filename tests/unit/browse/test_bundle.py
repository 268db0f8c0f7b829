"""`browse` as a command: pages as files that lead only to each other, a server that ends when told, and its errors."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner

from batchpond.api import Lake
from batchpond.cli.frame import Invocation, root
from batchpond.errors import UsageError
from batchpond_browse import bundle
from tests.rigs import browse as rig
from tests.rigs.lakes import LakeBuilder
from tests.rigs.report import Page


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rig.build(tmp_path_factory.mktemp("planned") / "lake")


@pytest.fixture(scope="module")
def written(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one study of two, by the command, which says what it wrote."""
    folder = tmp_path_factory.mktemp("bundle") / "answers"
    asked = ("browse", "--bundle", str(folder), "--study", rig.STUDY, "--limit", "3", "--json")
    said = json.loads(call("--lake", str(lake), *asked))
    assert said == {"path": str(folder), "n_files": len(list(folder.glob("*.html")))}
    return folder


def call(*arguments: str) -> str:
    return CliRunner().invoke(root, arguments, obj=Invocation(), standalone_mode=False, catch_exceptions=False).stdout


def test_the_files_lead_only_to_each_other_and_every_page_is_reached(written: Path) -> None:
    """No link, script or style is anywhere else, nothing asks to be sent, and from the index one comes to all of it."""
    names, reached, left = {path.name for path in written.glob("*.html")}, {"index.html"}, ["index.html"]
    while left:
        page = Page((written / left.pop()).read_text("utf-8"))
        assert not page.all("form")
        found = {one["href"] or "" for one in [*page.all("a"), *page.all("link")] if one.get("href")}
        found |= {one["src"] or "" for one in page.all("script")}
        for there in {unquote(urlsplit(one).path) for one in found} - {""}:
            assert (written / there).is_file(), there
            if there in names - reached:
                reached.add(there)
                left.append(there)
    assert reached == names


def test_pairs_hold_prompts_and_raw_lines_and_what_is_left_out_is_not_linked(written: Path) -> None:
    cases = sorted(written.glob("case-*.html"))
    assert len(cases) == 3
    texts = [path.read_text("utf-8") for path in cases]
    assert all("Compare &lt;b&gt;them&lt;/b&gt;." in text for text in texts)
    assert all("Raw line" in text for text in texts)


def test_a_bundle_of_one_study_names_no_other(written: Path) -> None:
    assert not any(rig.OTHER_STUDY in path.read_text("utf-8") for path in written.glob("*.html"))


def test_a_pair_on_which_judges_disagree_comes_first(tmp_path: Path) -> None:
    """Where not all get a page, those that are looked for first do."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported(
        [{"item_first": pair[way], "item_second": pair[1 - way], "request_model": judge, "outcome": "decided",
          "verdict": "first" if (way == 0) == (judge == "one" or pair[0] == "a") else "second"}
         for pair in ("ab", "yz") for judge in ("one", "two") for way in (0, 1)]
    )  # fmt: skip
    builder.build()
    bundle.write(tmp_path / "lake", tmp_path / "answers", n_cases=1)
    (case,) = (tmp_path / "answers").glob("case-*.html")
    assert "<h1>y and z</h1>" in case.read_text("utf-8")


def test_a_port_that_is_taken_is_said(lake: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot be had"):
            Lake(lake).browse(port=taken.getsockname()[1])


def test_a_folder_that_holds_something_is_refused(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds something"):
        bundle.write(lake, tmp_path)
    with pytest.raises(UsageError, match="no study"):
        bundle.write(lake, tmp_path / "new", study="nope")
    (known, *_) = Lake(lake).sql("select study from studies_current").rows()[0]
    with pytest.raises(UsageError) as raised:
        bundle.write(lake, tmp_path / "new", study=f"{known}s")
    assert raised.value.hint == f"did you mean {known!r}?"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_the_extra_it_says_what_to_install(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("batchpond_browse")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match="needs jinja2") as raised:
        call("--lake", str(lake), "browse", "--bundle", "x")
    assert raised.value.hint == "pip install 'batchpond[browse]'"


def test_it_serves_the_loopback_alone_until_it_is_told_to_stop(lake: Path) -> None:
    """The printed address opens it, its cookie goes on, the port is free again after the signal, and it ends with 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "batchpond", "--lake", str(lake), "browse", "--json"], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    document = ""
    while not document.endswith("}\n"):
        document += process.stdout.readline()
    address = urlsplit(json.loads(document)["address"])
    assert address.hostname == "127.0.0.1"
    assert address.port is not None
    asked = http.client.HTTPConnection("127.0.0.1", address.port, timeout=20)
    asked.request("GET", f"/?{address.query}")
    first = asked.getresponse()
    first.read()
    cookie = re.match(r"[^;]+", first.headers["set-cookie"])
    assert cookie
    asked.request("GET", "/study?study=planned", headers={"cookie": cookie[0]})
    answer = asked.getresponse()
    assert (first.status, answer.status) == (303, 200)
    assert b"openai/m1/none" in answer.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    process.stdout.close()
    asked.close()
