"""TCP ports in use on this host: a job's MASTER_PORT must be free on its first node.

Imported by the fork server: reads the kernel's tables, because the module `socket` is large.
"""

from __future__ import annotations

FIRST, COUNT = 20_000, 20_000
"""The range from which the controller takes the ports of jobs (controller/core/model/start_orders.py)."""
_LISTENS = "0A"


def listening_ports() -> set[int]:
    """The TCP ports that are listened on, IPv4 and IPv6."""
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{table}", encoding="ascii") as file:
                for line in file:
                    fields = line.split(None, 4)
                    if len(fields) > 3 and fields[3] == _LISTENS:
                        found.add(int(fields[1].rpartition(":")[2], 16))
        except OSError:
            continue  # because this host has no IPv6
    return found


def next_free_port(port: int) -> int:
    """This port if it is free, else the next free one of the range; this port if none is free."""
    taken = listening_ports()
    for step in range(COUNT):
        candidate = FIRST + (port - FIRST + step) % COUNT if step else port
        if candidate not in taken:
            return candidate
    return port
