"""The same pages as files, for colleagues: open `index.html`; nothing runs, and nothing is asked of any machine.

The pages are found as a reader would find them, from the first one by their links, lists before what they list. A page
of a pair or an item holds the prompts and raw lines of its judgments, too, which are pages of their own on a server.
Pictures and documents are files beside the pages, of kinds in which nothing runs, and none of them large.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from batchpond.errors import LakeError, UsageError
from batchpond.interop.labels import CARD
from batchpond.views import read
from batchpond_browse.asking import Lake, query
from batchpond_browse.pages import LISTS, STATIC, Pages, Reader, environment

INDEX: Final = "index.html"
CASES: Final = 500
PICTURE_PX: Final = 1_024
WHOLE_BYTES_MAX: Final = 200_000  # a larger picture is made smaller
FILE_BYTES_MAX: Final = 1_000_000
# The kinds that are written: a lake may come from anybody, and what runs would run where the file is opened.
KINDS: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf"})
Key = tuple[str, tuple[tuple[str, str], ...]]


class Bundle:
    """Pages that are to be written, each under the name that links to it have, and what they show, which is."""

    def __init__(self, lake: Lake, folder: Path, study: str | None, n_cases: int) -> None:
        self._folder = folder
        self._left = n_cases
        self._names: dict[Key, str] = {("", ()): INDEX}
        self._lists: list[Key] = [("", ())]
        self._cases: list[Key] = []
        self._pages = Pages(lake, environment(self.link, is_bundle=True), study_alone=study)

    def link(self, page: str, given: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Return the name of the file of a page, which is then to be written; "" for what the files leave out."""
        if page.startswith("static/"):
            return page
        found = {name: str(value) for name, value in {**(given or {}), **more}.items() if value not in (None, "")}
        key = (page, tuple(sorted(found.items())))
        if key in self._names:
            return self._names[key]
        name = f"{page}-{len(self._names)}.html"
        if page in {"case", "row"} and self._left > 0:
            self._left -= 1
            self._cases.append(key)
        elif page in {"study", *LISTS}:
            self._lists.append(key)
        elif page == "blob":
            name = self._written(f"shown-{len(self._names)}", found["sha256"])
        else:
            return ""
        self._names[key] = name
        return name

    def _written(self, name: str, digest: str) -> str:
        """Write a picture or document and return the name of its file; "" for what is large or of another kind."""
        found = self._pages.lake.rows(query("blob", {"sha256": digest}), is_kept=False)
        kind, content = (found[0]["media_type"], found[0]["content"]) if found else ("", b"")
        if kind.startswith("image/"):
            kind, content = read.fitted(kind, content, PICTURE_PX, WHOLE_BYTES_MAX)
        if kind not in KINDS or len(content) > FILE_BYTES_MAX:
            return ""
        name += f".{kind.rpartition('/')[2]}"
        (self._folder / name).write_bytes(content)
        return name

    def write(self) -> int:
        """Write every page and return how many files there are, with what they show."""
        while self._lists or self._cases:
            self._lists.sort(key=lambda one: ["disagreement" not in str(one), "flip" not in str(one)])
            key = (self._lists or self._cases).pop(0)
            (self._folder / self._names[key]).write_text(self._pages.page(Reader(), key[0], dict(key[1])), "utf-8")
        return sum(map(bool, self._names.values()))


def write(lake_path: Path, folder: Path, *, study: str | None = None, n_cases: int = CASES) -> int:
    """Write the pages of a lake, or of one study, with at most so many pairs and items; returns how many files.

    Raises UsageError where the folder holds something, or the lake no such study.
    """
    lake = Lake(lake_path)
    if study is not None:
        Pages(lake, environment(lambda *_, **__: "", is_bundle=True)).facets(study)
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} holds something already", hint="name a folder that is empty or not there")
        folder.mkdir(parents=True, exist_ok=True)
        for kept in (STATIC, CARD):
            shutil.copytree(kept, folder / "static", ignore=shutil.ignore_patterns("*.j2"), dirs_exist_ok=True)
        return Bundle(lake, folder, study, n_cases).write()
    except OSError as error:
        raise LakeError(f"{folder}: {error.strerror or error}", hint="name a folder that can be written to") from error
