"""The same pages as files, for colleagues: open `index.html`; nothing runs, and nothing is asked of any machine.

The pages are found as a reader would find them, from the first one by their links, lists before what they list. A page
of a pair or an item holds the prompts and raw lines of its judgments, too, which are pages of their own on a server.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from batchpond.errors import LakeError, UsageError
from batchpond_browse.asking import Lake
from batchpond_browse.pages import LISTS, Pages, Reader
from batchpond_browse.showing import STATIC, environment

INDEX: Final = "index.html"
CASES: Final = 500
Key = tuple[str, tuple[tuple[str, str], ...]]


class Bundle:
    """Pages that are to be written, each under the name that links to it have."""

    def __init__(self, lake: Lake, study: str | None, n_cases: int) -> None:
        self._study = study
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
        if page in {"case", "row"} and self._left > 0:
            self._left -= 1
            self._cases.append(key)
        elif page in {"study", *LISTS}:
            self._lists.append(key)
        else:
            return ""
        self._names[key] = f"{page}-{len(self._names)}.html"
        return self._names[key]

    def write(self, folder: Path) -> int:
        """Write every page and return how many there are."""
        while self._lists or self._cases:
            self._lists.sort(key=lambda one: ["disagreement" not in str(one), "flip" not in str(one)])
            key = (self._lists or self._cases).pop(0)
            (folder / self._names[key]).write_text(self._pages.page(Reader(), key[0], dict(key[1])), "utf-8")
        return len(self._names)


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
        shutil.copytree(STATIC, folder / "static")
        return Bundle(lake, study, n_cases).write(folder)
    except OSError as error:
        raise LakeError(f"{folder}: {error.strerror or error}", hint="name a folder that can be written to") from error
