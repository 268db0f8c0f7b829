"""Ctrl-C: remembered, and honoured even when an engine's native code never sees it or swallows it.

Python runs a signal handler between two of its own instructions, and a database engine may turn
the KeyboardInterrupt into an error that means something else to its caller. So a watcher thread
ends the process when the command has not ended by itself soon after, sooner when Ctrl-C is pressed
again; every step of batchpond survives that, as it survives a power cut.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from types import FrameType

from batchpond.errors import ExitCode

GRACE_S = 5.0
IMPATIENT_GRACE_S = 0.5


class Interrupts:
    """Listens for Ctrl-C for the length of a with block; only the main thread can.

    A process that was started with Ctrl-C ignored, as shells start background jobs, goes on ignoring it.
    """

    def __init__(self, last_words: str) -> None:
        self.was_asked = False
        self._last_words = last_words
        self._is_over = False
        is_main = threading.current_thread() is threading.main_thread()
        self._is_listening = is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN

    def __enter__(self) -> Interrupts:
        if self._is_listening:
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._write_end, False)
            self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_listening:
            self._is_over = True
            signal.set_wakeup_fd(self._wakeup_before)
            # Whoever was told to stop is leaving: a second Ctrl-C must not tear a traceback out of that.
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.was_asked else self._before)
            os.close(self._write_end)
            self._watcher.join()
            os.close(self._read_end)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self.was_asked and not self._is_over:
            self.was_asked = True
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """End the process some time after the first signal; the pipe is closed when the command has ended."""
        deadline_s: float | None = None
        while True:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._read_end], [], [], left_s)
            if not ready:
                os.write(2, f"\n{self._last_words}\n".encode())
                os._exit(ExitCode.INTERRUPTED)
            numbers = os.read(self._read_end, 64)
            if not numbers:
                return
            for _ in range(numbers.count(signal.SIGINT)):
                until_s = time.monotonic() + (GRACE_S if deadline_s is None else IMPATIENT_GRACE_S)
                deadline_s = until_s if deadline_s is None else min(deadline_s, until_s)
