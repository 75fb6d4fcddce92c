"""Leases: a lease is the time for which a job may run without contact with the controller.

One file in the spool has the time of the last contact, and the agent writes this file. Therefore a renewal
costs one write for all jobs. A supervisor reads the file only at the time at which the lease of its job would
expire (`left_s`). If the lease has expired, the supervisor ends the job (agent/supervisor/ending.py). If the
supervisor is stuck and does not end the job, the fork server kills the supervisor
(agent/supervisor/fork_server.py).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from agent.attempts import attempt_record
from agent.attempts.attempt_record import UnreadableRecord

NAME = "lease"
LEASE_EXPIRED = "node_lost: no message from the controller for longer than the lease"
_TRIES = 3


def boot_time_s() -> float:
    """Return the seconds since this host booted, including the time in suspend. Users cannot change this
    clock.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_renewal(descriptor: int, boot_id: str, contact_s: float) -> None:
    """Write `contact_s`, the time of the last contact with the controller in seconds since boot, to the open
    file `descriptor`. `boot_id` identifies the boot from which the seconds are counted.
    """
    os.pwrite(descriptor, attempt_record.encode_fact(NAME, boot_id, f"{contact_s:020.6f}"), 0)


def last_renewal(spool: str, boot_id: str) -> float:
    """Return the time of the last contact with the controller, in seconds since boot, from the file in
    `spool`. If the file has no time for the boot `boot_id`, return -inf.
    """
    for _ in range(_TRIES):
        with suppress(OSError, UnreadableRecord, ValueError, IndexError):
            with open(f"{spool}/{NAME}", "rb") as file:
                line = attempt_record.decode_fact(file.read().rstrip(b"\n"))
            return float(line[2]) if line[1] == boot_id else float("-inf")
        # Wait and read the file again, because the agent may be writing the file at this moment.
        time.sleep(0.01)
    return float("-inf")


def left_s(spool: str, boot_id: str, lease_s: float) -> float:
    """Return the seconds until a lease of `lease_s` seconds expires. The result is 0 or less if the lease has
    expired.
    """
    return last_renewal(spool, boot_id) + lease_s - boot_time_s()
