"""Controllers that stand still at the worst moment, with or without their fences, as a test of the oracle.

    python -m tests.takeovers.unfenced --freeze FILE --at commit --without database

If FILE exists when the moment comes, the controller removes the file and stops itself (SIGSTOP). The moment
`commit` is after the last look at the clock and before the transaction; `orders` is after the commit and
before its orders are sent. Each order that is sent is written to FILE.PID.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import controller.__main__
import controller.daemon.daemon
import controller.reload
from controller.core.model.decision.effects import SendToNode
from controller.core.model.events.event import Event
from controller.daemon import Daemon
from controller.daemon.agent_links import AgentLinks
from controller.store.backends.postgres import PostgresServer
from controller.store.leader import rows
from controller.store.leader.lease import Lease
from controller.store.store import Store
from wire.agent.orders import Start

FENCES = ("database", "clock")
freeze = Path()


def stand_still() -> None:
    """Stop this process until it gets SIGCONT, once for each time the file is made."""
    if freeze.exists():
        freeze.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


class StopsInCommit(Store):
    @contextmanager
    def _proven(self) -> Iterator[None]:
        stand_still()
        with super()._proven():
            yield


class StopsBeforeOrders(Daemon):
    async def _commit(self, events: tuple[Event, ...]) -> None:
        await super()._commit(events)
        if any(type(event).__name__ == "JobPlaced" for event in events):
            stand_still()


class NotesOrders(AgentLinks):
    def send(self, order: SendToNode) -> None:
        if isinstance(order.frame, Start):
            with open(f"{freeze}.{os.getpid()}", "a") as file:
                file.write(f"{order.frame.job}\n")
        super().send(order)


def main() -> int:
    """The controller's own main, with some parts replaced."""
    global freeze
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freeze", type=Path, required=True)
    parser.add_argument("--at", choices=("commit", "orders"), required=True)
    parser.add_argument("--without", choices=FENCES)
    parser.add_argument("--config")
    given = parser.parse_args()
    freeze = given.freeze
    if given.at == "commit":
        controller.__main__.Store = StopsInCommit  # type: ignore[misc]
    else:
        controller.__main__.Daemon = StopsBeforeOrders  # type: ignore[misc]
    # Let the next leader write nothing at its start. Otherwise its entry would have the number of the stale
    # one, and the primary key of the journal would refuse the stale entry.
    controller.reload.digest = lambda _config: "same"
    controller.daemon.daemon.AgentLinks = NotesOrders  # type: ignore[misc]
    if given.without == "database":
        PostgresServer.prove = lambda _self, _transaction: None  # type: ignore[method-assign]
        rows.end_sessions = lambda _line, _holder: None
    if given.without == "clock":
        Lease.may_act = property(lambda self: self.epoch > 0)  # type: ignore[assignment,method-assign]
    return controller.__main__.main(given.config)


if __name__ == "__main__":
    sys.exit(main())
