"""The route that lists the controllers of the cluster: the leader and its standbys."""

from __future__ import annotations

import os
import socket
import time

from controller.api.server.leader_address import leader_address
from controller.api.server.request import Call
from controller.store.leader.holder import pid_and_host
from controller.store.leader.lease import LEASE_S
from wire import VERSION
from wire.api.service.controllers import ControllersView, ControllerView


async def show(call: Call) -> ControllersView:
    """Show the controllers of the cluster with their roles: leader, standby or silent."""
    daemon = call.daemon
    as_of = daemon.standby.as_of if daemon.standby is not None else time.time()
    leader = await daemon.read(daemon.store.leader)
    rows = await daemon.read(daemon.store.controllers)
    if leader is None:
        only = ControllerView(
            "leader",
            socket.gethostname(),
            os.getpid(),
            daemon.url,
            VERSION,
            daemon.seq,
            daemon.started_at,
            0.0,
            True,
        )
        return ControllersView(daemon.url, 0, as_of, (only,))
    leads = leader.holder if leader.left_s > 0 else ""
    views = []
    for row in rows:
        pid, host = pid_and_host(row.holder)
        role = "leader" if row.holder == leads else "standby" if row.seen_s < LEASE_S else "silent"
        this = row.holder == daemon.holder
        views.append(
            ControllerView(
                role, host, pid, row.address, row.version, row.seq, row.since, max(0.0, row.seen_s), this
            )
        )
    address = leader.address if leads else ""
    if daemon.standby is not None:
        address = leader_address(daemon, call.request)
    return ControllersView(address, leader.epoch, as_of, tuple(views))
