"""The list of faults: each stands there once, and each test that it names is there."""

from __future__ import annotations

import ast
from functools import cache

from tests.rigs import faults_page

N_FAULTS = 165
# May only go down.
N_NOT_COVERED_MAX = 6
N_TESTS_MAX = 4
FAULTS = faults_page.load()


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the tests of a file: its functions, and the classes that it makes of state machines."""
    found = ast.parse((faults_page.TESTS.parent / path).read_text("utf-8")).body
    functions = {node.name for node in found if isinstance(node, ast.FunctionDef)}
    assigned = {
        name.id
        for node in found
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name) and name.id.startswith("Test")
    }
    return frozenset(functions | assigned)


def test_every_fault_stands_there_once_and_in_order() -> None:
    """A key that is there twice would be an error of the file itself."""
    assert [fault.fault_id for fault in FAULTS] == [f"F{number:03}" for number in range(1, N_FAULTS + 1)]
    assert len({fault.name for fault in FAULTS}) == N_FAULTS


def test_a_fault_has_either_tests_or_a_reason() -> None:
    """And what is only half proven has tests."""
    for fault in FAULTS:
        assert fault.what.endswith("."), fault
        assert bool(fault.tests) != bool(fault.not_covered), fault
        assert fault.tests or fault.partly is None, fault
        assert len(set(fault.tests)) == len(fault.tests) <= N_TESTS_MAX, fault


def test_every_test_that_a_fault_names_is_there() -> None:
    """Named by file and function, without the brackets of parameters."""
    for test in (test for fault in FAULTS for test in fault.tests):
        path, _, name = test.partition("::")
        assert path.startswith("tests/"), test
        assert (faults_page.TESTS.parent / path).is_file(), test
        assert name.startswith(("test_", "Test")), test
        assert name in names_in(path), test


def test_no_more_is_left_uncovered_than_was() -> None:
    """A fault that has a test keeps one."""
    assert sum(fault.not_covered is not None for fault in FAULTS) <= N_NOT_COVERED_MAX


def test_the_page_about_faults_is_up_to_date() -> None:
    """`python -m tests.rigs.faults_page` was run after the last change."""
    assert faults_page.PAGE.read_text("utf-8") == faults_page.render(FAULTS)
