"""What the pages do by themselves: they show what is new in the lake, and keep what somebody typed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import batchpond_browse
from batchpond.interop import labels

NODE = shutil.which("node") or ""
SCRIPTS = (labels.CARD / "keys.js", Path(batchpond_browse.__file__).parent / "static" / "browse.js")
# A page of one comment field that nobody is in, its form's token, and a server that has something new.
PAGE = """
const [typed, ...scripts] = process.argv.slice(2);
const asked = [], later = [];
const comment = { type: "text", value: typed, defaultValue: "as saved", matches: () => false };
const token = { type: "hidden", value: "set by the script", defaultValue: "", matches: () => false };
const body = { dataset: { pulse: "1", page: "case" }, matches: () => false };
globalThis.location = { href: "http://127.0.0.1/case" };
globalThis.sessionStorage = { getItem: () => null, setItem: () => {} };
globalThis.document = {
  body, hidden: false, activeElement: body, addEventListener: () => {}, getElementById: () => ({}),
  querySelector: () => null, querySelectorAll: (what) => (what.includes("input") ? [token, comment] : []),
};
globalThis.fetch = async (what) => { asked.push(what); return { ok: false, text: async () => "2" }; };
globalThis.setTimeout = (call) => { later.push(call); };
(0, eval)(scripts.map((path) => require("fs").readFileSync(path, "utf8")).join(";"));
later[0]().then(() => console.log(JSON.stringify(asked)));
"""


@pytest.mark.skipif(not NODE, reason="no node")
@pytest.mark.parametrize(("typed", "is_shown"), [("as saved", True), ("not saved yet", False)])
def test_a_comment_that_was_typed_is_not_replaced(tmp_path: Path, typed: str, *, is_shown: bool) -> None:
    """Also while the field has no focus: who looked away from it has not handed it in."""
    page = tmp_path / "page.js"
    page.write_text(PAGE)
    done = subprocess.run([NODE, page, typed, *SCRIPTS], capture_output=True, text=True, check=True)
    assert ("http://127.0.0.1/case" in json.loads(done.stdout)) is is_shown
