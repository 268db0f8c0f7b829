"""Ctrl-C: remembered, and honoured even when an engine's native code never sees it or swallows it.

Python runs a signal handler between two of its own instructions, and a database engine may turn
the KeyboardInterrupt into an error that means something else to its caller. So a watcher thread
ends the process when the command has not ended by itself soon after; every step of batchpond
survives that, as it survives a power cut.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import NoReturn

from batchpond.errors import ExitCode

GRACE_S = 5.0


class Interrupts:
    """Listens for Ctrl-C for the length of a with block; only the main thread can."""

    def __init__(self, last_words: str) -> None:
        self.was_asked = False
        self._last_words = last_words
        self._ended = threading.Event()
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._is_main:
            self._before = signal.signal(signal.SIGINT, self._handle)
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._write_end, False)
            self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            self._ended.set()
            signal.set_wakeup_fd(self._wakeup_before)
            signal.signal(signal.SIGINT, self._before)
            os.close(self._write_end)
            self._watcher.join()
            os.close(self._read_end)

    def _handle(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self.was_asked = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        while numbers := os.read(self._read_end, 64):
            if signal.SIGINT in numbers and not self._ended.wait(GRACE_S):
                os.write(2, f"\n{self._last_words}\n".encode())
                os._exit(ExitCode.INTERRUPTED)
