"""Finds free TCP ports on this host, because a job's MASTER_PORT must be free on its first node.

The fork server must stay small and imports this module. So this module reads the kernel's tables in
/proc and does not use the large module `socket`.
"""

from __future__ import annotations

FIRST, COUNT = 20_000, 20_000
"""The first port, and the number of ports, of the range from which the controller assigns a port to each job
(controller/core/model/decision/start_orders.py).
"""


def ports_in_use() -> set[int]:
    """Return the local ports of all TCP sockets on this host, for IPv4 and IPv6.

    This includes local ports above 32,767, which the kernel chooses for outgoing connections. A job cannot
    listen on such a port while the connection exists.
    """
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{table}", encoding="ascii") as file:
                next(file, "")  # Skip the header line of the table.
                found |= {int(line.split(None, 2)[1].rpartition(":")[2], 16) for line in file}
        except OSError:
            continue  # Skip the missing table, because this host has no IPv6.
    return found


def next_free_port(port: int) -> int:
    """Return `port` if no socket uses it. If a socket uses it, return the next unused port in the range of
    ports for jobs. If all ports of the range are in use, return `port`.
    """
    taken = ports_in_use()
    for step in range(COUNT):
        candidate = FIRST + (port - FIRST + step) % COUNT if step else port
        if candidate not in taken:
            return candidate
    return port
