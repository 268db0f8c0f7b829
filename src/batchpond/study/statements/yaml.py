"""Policy statements of a YAML spec: one statement, a list of them, or several documents, as SpecEval's tools write.

Every value is the text that stands in the file: `no` is an id, not false, and a date is no date. The library
PyYAML belongs to the extra `yaml`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from batchpond.errors import StudyError

VALUES_MAX: Final = 200_000
SIZE_MAX_BYTES: Final = 10_000_000
_LIST: Final = "statements"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield each statement of a YAML text as a mapping, or what is wrong as a text, with its line number.

    Raises StudyError where PyYAML is not installed.
    """
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise StudyError("YAML specs need PyYAML", hint="pip install 'batchpond[yaml]'") from None
    reader = _Reader(yaml)
    try:
        # Not the loader in C: a text that is nested deeply enough ends the process there.
        for node in yaml.compose_all(text, yaml.BaseLoader):
            yield from reader.statements(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        yield (mark.line + 1 if mark else 1), f"is not YAML: {error.problem or error.context}"
    except yaml.reader.ReaderError as error:
        yield text.count("\n", 0, error.position) + 1, f"is not YAML: {error.reason}"
    except RecursionError:
        yield 1, "is not usable YAML: nested too deeply"
    except _WrongError as error:
        yield error.line_no, error.problem


class _WrongError(ValueError):
    """What a node says cannot be used."""

    def __init__(self, node: Any, problem: str) -> None:
        super().__init__(problem)
        self.line_no: int = node.start_mark.line + 1
        self.problem = problem


class _Reader:
    """Nodes to texts, lists and mappings; how many values there are is bounded, because YAML can repeat by name."""

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._n_left = VALUES_MAX

    def statements(self, node: Any) -> Iterator[tuple[int, Any]]:
        """Yield what one document holds."""
        if isinstance(node, self._yaml.MappingNode):
            lists = [value for key, value in node.value if key.value == _LIST]
            if lists and not any(key.value == "id" for key, _ in node.value):
                node = lists[0]
        if isinstance(node, self._yaml.SequenceNode):
            yield from map(self._statement, node.value)
        elif not (isinstance(node, self._yaml.ScalarNode) and self._value(node) is None):
            yield self._statement(node)

    def _statement(self, node: Any) -> tuple[int, Any]:
        found = self._value(node)
        is_mapping = isinstance(found, dict)
        return node.start_mark.line + 1, found if is_mapping else f"is {found!r:.60}, not a mapping with id and text"

    def _value(self, node: Any) -> Any:
        self._n_left -= 1
        if self._n_left < 0:
            raise _WrongError(node, f"is not usable YAML: more than {VALUES_MAX:,} values")
        match node:
            case self._yaml.SequenceNode():
                return [self._value(one) for one in node.value]
            case self._yaml.MappingNode():
                return self._mapping(node)
            case _:
                return None if not node.style and node.value in _NULLS else node.value

    def _mapping(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = self._value(key)
            if not isinstance(name, str):
                raise _WrongError(key, "has a key that is no text")
            if name in found:
                raise _WrongError(key, f"has the key {name!r} twice")
            found[name] = self._value(value)
        return found
