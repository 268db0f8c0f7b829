"""A lack of memory is told from all else that goes wrong, in whatever words a library has it."""

from __future__ import annotations

import errno

import pytest

from batchpond.cli.frame import _is_of_memory
from batchpond.errors import LakeError

ZSTD = "ZSTD compression failed: Allocation error : not enough memory"


def caused_by(cause: BaseException) -> LakeError:
    error = LakeError(f"lake: {cause}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("cause", [OSError(ZSTD), OSError(errno.ENOMEM, "no"), MemoryError()])
def test_a_lack_of_memory_is_seen_behind_the_error_that_it_led_to(cause: BaseException) -> None:
    assert _is_of_memory(cause)
    assert _is_of_memory(caused_by(cause))


@pytest.mark.parametrize("cause", [OSError("ZSTD decompression failed: Data corruption detected"), OSError(28, "full")])
def test_damage_and_a_full_disk_are_none(cause: BaseException) -> None:
    assert not _is_of_memory(caused_by(cause))
