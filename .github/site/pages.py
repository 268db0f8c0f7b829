"""What the site has beside the guides, and how it shows what their blocks say of themselves: a hook of MkDocs.

Guides are read where they are printed from, so nothing in them is written for the site: their blocks are renamed, the
README's pictures are shown above the guides of the same names, and pages that stand elsewhere get the site's links.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GUIDES = "src/batchpond/guides"
IMAGES = ".github/images"
PLACES = {
    "index.md": "README.md",
    "views.md": "sql/README.md",
    "json.md": "src/batchpond/cli/README.md",
    "contributing.md": ".github/CONTRIBUTING.md",
}
"""The pages of the site that are no guides, by where they stand in the checkout."""
API = "api.md"
_DOORS = ("Lake", "Study", "progress")
_API_HEAD = """\
# Python API

Everything that `batchpond` exports, with its types. [Python](python.md) shows it at work.

Anything else may change without notice.
"""
_FENCE = re.compile(r"^```(\w+) (.+)$", re.MULTILINE)
_MERMAID = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"(?<=\]\()([^)#:]+)(?=[)#])")
_CELL = re.compile(r"<td>.*?</td>", re.DOTALL)
_PICTURE = re.compile(rf"!\[[^\]]+\]\({re.escape(IMAGES)}/(\w+)\.png\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are no guides, and the pictures."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - the tests read this module without MkDocs

    for name, place in PLACES.items():
        files.append(File.generated(config, name, content=placed((ROOT / place).read_text("utf-8"), place)))
    files.append(File.generated(config, API, content=api()))
    for picture in sorted((ROOT / IMAGES).glob("*.png")):
        files.append(File.generated(config, f"images/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Return a page as the site's Markdown has it."""
    return pictured(shown(text), page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Return a page's HTML without the marks that keep a `|` in a table's code from ending its cell."""
    return _CELL.sub(lambda found: found[0].replace("\\|", "|"), html)


def placed(text: str, place: str) -> str:
    """Return the text of a page of the checkout whose links lead to pages of the site."""
    names = {path: name for name, path in PLACES.items()} | {"lake/README.md": "lake.md"}

    def target(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[1]))
        for folder, beside in ((GUIDES, ""), (IMAGES, "images/")):
            path = path.replace(f"{folder}/", beside) if path.startswith(f"{folder}/") else path
        return names.get(path, path)

    return _TARGET.sub(target, text)


def shown(text: str) -> str:
    """Return Markdown whose blocks have titles for what they say of themselves: a file's name, or that it is output.

    Drawings of Mermaid are left out: what draws them would have to come from elsewhere.
    """

    def fence(found: re.Match[str]) -> str:
        language, fate = found.groups()
        if fate.startswith(("no-run: ", "no-rows: ")):
            return f"```{language}"
        return f'```{language} title="{"prints" if fate == "output" else fate}"'

    return re.sub(r"^  - ", "    - ", _FENCE.sub(fence, _MERMAID.sub("", text)), flags=re.MULTILINE)


def pictured(text: str, name: str) -> str:
    """Return a guide with the README's picture of the same name before its second paragraph, if there is one."""
    for found in _PICTURE.finditer((ROOT / "README.md").read_text("utf-8")):
        if f"{found[1]}.md" == name:
            title, sentence, rest = text.split("\n\n", 2)
            return "\n\n".join((title, sentence, found[0].replace(IMAGES, "images"), rest))
    return text


def exported() -> Iterator[tuple[str, str]]:
    """Yield every public name of the package with the module that has it."""
    for node in ast.parse((ROOT / "src/batchpond/__init__.pyi").read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            yield from ((name.name, f"{node.module}.{name.name}") for name in node.names)


def api() -> str:
    """Return the page of what the package exports: the doors first, then what their verbs return, then the errors."""
    places = dict(exported())
    doors = [places.pop(name) for name in _DOORS]
    errors = places.pop("errors")
    parts = [("The doors", doors), ("What verbs return", [places[name] for name in sorted(places)])]
    lines = [_API_HEAD]
    for title, names in (*parts, ("Errors", [errors])):
        lines += [f"## {title}\n", *(f"::: {name}\n" for name in names)]
    return "\n".join(lines)
