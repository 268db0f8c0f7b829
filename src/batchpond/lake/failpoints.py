"""Named places where a test can make the process die, so that recovery is proven, not hoped for.

`BATCHPOND_FAILPOINT=S8.after:kill` stops the process with SIGKILL the first time it passes
`S8.after`; `S8.after:kill:3` the third time; `raise` raises OSError and `stop` sends SIGSTOP.
One environment look-up when the variable is unset.
"""

from __future__ import annotations

import errno
import os
import signal

VARIABLE = "BATCHPOND_FAILPOINT"
NAMES = (
    "S0", "S1", "S2", "S3", "S4", "S5.before", "S5", "S6", "S7", "S8.before", "S8.after", "S9",
    "R0", "R1", "R2",
    "L0", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8",
    "Y0", "Y1", "Y2", "Y3", "Y4", "Y5", "Y6", "Y7", "Y8", "Y9", "Y10", "Y11",
    "T0", "T1",
    "W0",
    "F0", "F1", "F2",
)  # fmt: skip

_passes: dict[str, int] = {}


def reach(name: str) -> None:
    """Pass the failpoint `name`, or die there if the environment says so.

    Raises OSError(EIO) for the action `raise`.
    """
    setting = os.environ.get(VARIABLE)
    if setting is None:
        return
    wanted, _, rest = setting.partition(":")
    if wanted != name:
        return
    action, _, nth = rest.partition(":")
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] != int(nth or "1"):
        return
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise OSError(errno.EIO, f"failpoint {name}")
        case _:
            raise ValueError(f"{VARIABLE}={setting}: unknown action {action!r}")
