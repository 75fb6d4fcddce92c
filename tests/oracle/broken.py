"""Controllers that each break one guarantee, as a test of the oracle: `python -m tests.oracle.broken A`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from typing import Any

import controller.__main__
import controller.daemon.daemon
import controller.nodes.link_factory
from controller.core.model.events.event import Event
from controller.daemon import Daemon
from controller.daemon.agent_links import AgentLinks
from controller.nodes.link import LinkLost
from controller.nodes.local import LocalLink
from wire.agent.frames import AgentFrame, ControllerFrame
from wire.agent.orders import GpuHold, Settle, Start, Stop
from wire.agent.reports import Report

LATER_S = 2.0


class AnswersFirst(Daemon):
    """A: acknowledges at once and stores two seconds later."""

    late: tuple[Event, ...] = ()
    saving: asyncio.Task[None] | None = None

    async def _commit(self, events: tuple[Event, ...]) -> None:
        self.late += events
        self.saving = self.saving or asyncio.create_task(self._save())

    async def _save(self) -> None:
        await asyncio.sleep(LATER_S)
        due, self.late, self.saving = self.late, (), None
        await super()._commit(due)


class Twofold(LocalLink):
    """B: sends each start order to every node, and no stop order."""

    every: list[LocalLink] = []  # noqa: RUF012 - all of one process

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.every.append(self)

    def send(self, frame: ControllerFrame) -> None:
        for link in self.every if isinstance(frame, Start) else [self] * (not isinstance(frame, Stop)):
            LocalLink.send(link, frame)


class NeverSatisfied(LocalLink):
    """C: runs each ended job once more."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.orders: dict[int, Start] = {}

    def send(self, frame: ControllerFrame) -> None:
        if isinstance(frame, Start):
            self.orders[frame.job] = frame
        if isinstance(frame, Settle) and frame.job in self.orders:
            order, attempt = self.orders.pop(frame.job), frame.attempt + 1
            env = {**order.env, "CORRAL_ATTEMPT": str(attempt)}
            super().send(replace(order, attempt=attempt, env=env))
        if not isinstance(frame, Stop):
            super().send(frame)


class Optimist(AgentLinks):
    """D: records every exit as a success."""

    def on_frame(self, node: str, frame: AgentFrame | LinkLost) -> str:
        if isinstance(frame, Report) and frame.status.code:
            frame = Report(replace(frame.status, code=0))
        return super().on_frame(node, frame)


class Favourite(LocalLink):
    """E: allocates the same GPU to every job."""

    gpus: tuple[GpuHold, ...] = ()

    def send(self, frame: ControllerFrame) -> None:
        if isinstance(frame, Start):
            self.gpus = self.gpus or frame.gpus
            frame = replace(frame, gpus=self.gpus)
        super().send(frame)


PARTS = {"A": AnswersFirst, "B": Twofold, "C": NeverSatisfied, "D": Optimist, "E": Favourite}


def main() -> int:
    """The controller's own main, with one part replaced."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("promise", choices=PARTS)
    parser.add_argument("--config")
    parser.add_argument("--new-cluster", action="store_true")
    given = parser.parse_args()
    part = PARTS[given.promise]
    if issubclass(part, Daemon):
        controller.__main__.Daemon = part
    elif issubclass(part, AgentLinks):
        controller.daemon.daemon.AgentLinks = part
    else:
        controller.nodes.link_factory.LocalLink = part
    return controller.__main__.main(given.config, new_cluster=given.new_cluster)


if __name__ == "__main__":
    sys.exit(main())
