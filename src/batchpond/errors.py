"""Every error batchpond raises, one class per decision a caller can make; what scripts see of it is `exit_code`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """The process exit codes, as the guide `commands` lists them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    ATTENTION = 3
    ACCESS = 4
    LAKE = 5
    PENDING = 8
    WORSE = 9
    BUSY = 75
    INTERRUPTED = 130


class BatchpondError(Exception):
    """Base of all errors: what happened, and in `hint` what to do next."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(BatchpondError):
    """The call itself must change: an option, a setting, or a confirmation."""

    exit_code = ExitCode.USAGE


class StudyError(UsageError):
    """A study file or an input it names cannot be used as written."""


class AttentionError(BatchpondError):
    """Something needs a person's decision before it can go on safely."""

    exit_code = ExitCode.ATTENTION


class LakeWarning(UserWarning):
    """A file of the lake is left out, or is not as it was published; the command line says so and ends with 5."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} ({hint})")
        self.message = message
        self.hint = hint


class AccessError(BatchpondError):
    """A key is missing, refused, or sees another account than the lake's batches."""

    exit_code = ExitCode.ACCESS


class ForbiddenError(AccessError):
    """A key is good, and may not make this call."""


class LakeError(BatchpondError):
    """The lake cannot be read or written safely."""

    exit_code = ExitCode.LAKE


class OvertakenError(LakeError):
    """Another machine writes to the lake by now; what was published is intact, and trying again later is safe."""

    exit_code = ExitCode.BUSY


class AwayError(LakeError):
    """A lake's store did not do what it was asked; what was published is intact, and trying again later is safe."""

    exit_code = ExitCode.FAILED


class RefusedError(LakeError):
    """A lake's store takes no key, or not for this."""

    exit_code = ExitCode.ACCESS


class BusyError(BatchpondError):
    """Another process is writing to this lake; trying again later is safe."""

    exit_code = ExitCode.BUSY


class ProviderError(BatchpondError):
    """A provider refused or failed a call after all permitted retries; `retry_after_s` is how long it asks to wait."""

    retry_after_s: float | None = None


class UnreachableError(ProviderError):
    """No connection to a provider's address came about, so nothing reached it; asking it for more now is no use."""


class PutOffError(UnreachableError):
    """A provider asked to be left alone for a while, which is no failure of anything."""

    exit_code = ExitCode.DONE


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Raise UsageError where a package is missing that `what` needs and an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"`{what}` needs {error.name}", hint=f"pip install 'batchpond[{extra}]'") from None
