"""The worker of mode `files`: any number of these, on any hosts, answer what lies in a folder of requests.

It knows the folder's contract (guide `files-protocol`) and nothing of batchpond: it is the standard library, httpx for
engines that speak HTTP, and obstore where the folder is in an object store, so that this package can be copied to a
machine that has the GPUs and nothing else.

    settings    what a worker is told, with its help: the options of both command lines; and what it did
    place       the contract: batches and their parts, whatever holds the files
    folder      a folder: put-if-absent by links, and passing names that can be swept away
    address     an object store: put-if-absent, and names that can be taken before another takes them
    claims      who works on which part: leases, and the election of who takes over
    held        a part that this worker holds: answers that come, written in small files, joined at its end
    supply      where the next part comes from: batches in order, whatever nobody holds
    server      an OpenAI-compatible server, asked call by call
    programs    a command for each part, and a vLLM that is started here
    work        the loop: claims parts, feeds the engine's threads, writes what they bring
"""

from __future__ import annotations

DONE, FAILED, USAGE, ACCESS, INTERRUPTED = 0, 1, 2, 4, 130


class WorkError(Exception):
    """What ended the worker, what to do next, and the exit code; whatever it held is written and free again."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
