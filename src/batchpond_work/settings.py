"""What a worker is told, with the help of each setting, of which both command lines are made; and what it did."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, fields
from typing import Any

from batchpond_work import DONE, FAILED, INTERRUPTED, USAGE, WorkError


def _option(default: Any, says: str, metavar: str = "N") -> Any:
    return field(default=default, metadata={"help": says, "metavar": metavar})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How a worker works; raises WorkError for numbers that cannot be."""

    engine: str = _option("", "The URL of an OpenAI-compatible server; 'command: CMD {input} {output}', run for each"
                          " part; or 'vllm [ARGUMENTS]', which starts `vllm serve MODEL` here.", "ENGINE")  # fmt: skip
    model: str = _option("", "Only batches of this model.", "MODEL")
    concurrency: int = _option(0, "Calls at once.  [default: 32; 256 for a vLLM that is started here]")
    key_env: str = _option("", "The variable that holds the server's key; none is sent otherwise.", "NAME")
    timeout: float = _option(600.0, "How long one call may take, its answer included.", "SECONDS")
    tries: int = _option(5, "How often a call is tried that fails in passing.")
    give_up: bool = _option(False, "Write what still fails after its tries as errors; otherwise it stays to be asked.")
    flush: int = _option(50, "Answers to a file, sooner after 10 seconds: what a kill may lose of a part.")
    lease: float = _option(60.0, "After how long without a sign of its worker a part is free again.", "SECONDS")
    host: str = _option("", "This machine's name in claims and file names; its host name otherwise.", "NAME")
    watch: bool = _option(False, "Go on when all is answered, for what comes later.")
    no_wait: bool = _option(False, "End once all that is left is held by others, without waiting for them.")

    def __post_init__(self) -> None:
        if not self.engine.strip():
            raise WorkError("no engine", hint="--engine http://localhost:8000/v1, for instance", exit_code=USAGE)
        least = {"concurrency": 0, "tries": 1, "flush": 1, "timeout": 0.1, "lease": 1.0}
        for name, minimum in least.items():
            if not getattr(self, name) >= minimum:
                raise WorkError(f"--{name} is at least {minimum:g}", exit_code=USAGE)

    @property
    def host_name(self) -> str:
        """The machine's name, of characters that any file system takes."""
        named = self.host or socket.gethostname()
        return "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in named)[:40] or "host"


OPTIONS = tuple(fields(Settings))


@dataclass(slots=True)
class Tally:
    """What a worker did: requests it asked, rows it brought in (of which errors), what it found answered, what is left.

    `n_late` of its answers came when another worker had taken their part over, and were not written; `n_not_whole`
    batches are no files that their manifests describe.
    """

    n_asked: int = 0
    n_answered: int = 0
    n_errors: int = 0
    n_skipped: int = 0
    n_left: int = 0
    n_late: int = 0
    n_parts: int = 0
    n_taken_over: int = 0
    n_not_whole: int = 0
    is_interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """What a script is told: 1 where requests have no answer that this worker could not get."""
        return INTERRUPTED if self.is_interrupted else FAILED if self.n_left or self.n_not_whole else DONE

    @property
    def text(self) -> str:
        """All of it in a line."""
        words = (
            f"asked {self.n_asked:,}",
            f"answered {self.n_answered:,} ({self.n_errors:,} errors)",
            f"{self.n_skipped:,} had answers already",
            f"{self.n_left:,} left",
            f"{self.n_parts:,} parts done, {self.n_taken_over:,} taken over",
            f"{self.n_late:,} answers too late",
        )
        return ("stopped: " if self.is_interrupted else "") + ", ".join(words)
