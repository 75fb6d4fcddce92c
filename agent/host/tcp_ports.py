"""TCP ports in use on this host: a job's MASTER_PORT must be free on its first node.

Imported by the fork server: reads the kernel's tables, because the module `socket` is large.
"""

from __future__ import annotations

FIRST, COUNT = 20_000, 20_000
"""The range from which the controller takes the ports of jobs (controller/core/model/start_orders.py)."""


def ports_in_use() -> set[int]:
    """The local ports of all TCP sockets, IPv4 and IPv6.

    Those of connections as well: the kernel gives outgoing connections ports from 32,768 on, and a job cannot
    listen on such a port while the connection lives.
    """
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{table}", encoding="ascii") as file:
                next(file, "")  # because the first line has the names of the columns
                found |= {int(line.split(None, 2)[1].rpartition(":")[2], 16) for line in file}
        except OSError:
            continue  # because this host has no IPv6
    return found


def next_free_port(port: int) -> int:
    """This port if it is free, else the next free one of the range; this port if none is free."""
    taken = ports_in_use()
    for step in range(COUNT):
        candidate = FIRST + (port - FIRST + step) % COUNT if step else port
        if candidate not in taken:
            return candidate
    return port
