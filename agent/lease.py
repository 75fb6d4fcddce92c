"""How long jobs may run without a word from the controller: one file for all supervisors of a spool.

It holds what this host's clock said when the controller last heard of us. The agent writes it, supervisors
read it when their lease would be over: a renewal costs one write, however many jobs there are.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from agent import record
from agent.record import Unreadable

NAME = "lease"
OVER = "node_lost: the controller was not heard of for longer than the lease"
_TRIES = 3


def clock() -> float:
    """Seconds since this host booted, those in suspension too; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def renew(descriptor: int, boot: str, heard: float) -> None:
    """Write down when the controller heard of us."""
    os.pwrite(descriptor, record.line(NAME, boot, f"{heard:020.6f}"), 0)


def renewed(spool: str, boot: str) -> float:
    """When the controller heard of us last; a file that says nothing for this boot holds no lease."""
    for _ in range(_TRIES):
        with suppress(OSError, Unreadable, ValueError, IndexError):
            with open(f"{spool}/{NAME}", "rb") as file:
                fact = record.fact(file.read().rstrip(b"\n"))
            return float(fact[2]) if fact[1] == boot else float("-inf")
        time.sleep(0.01)  # read while it was being written
    return float("-inf")
