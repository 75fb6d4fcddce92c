"""Ways to an agent that the contract is tried on, and a listener that hears what a link delivers."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from controller.nodes.link import LinkLost, NodeLink
from controller.nodes.local import LocalLink
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts, key_line
from controller.nodes.ssh.link import SshLink
from tests.agent.driving import end_all
from tests.controller.nodes.sshd import Sshd
from tests.limits import PATIENCE_S
from wire.agent.frames import AgentFrame, AttemptStatus, Hello, Report
from wire.cluster.hosts import HostSpec

HOST = HostSpec("", gpus="simulated:2xH100", run_as_self=True)
T = TypeVar("T")


class Way(ABC):
    """One implementation of NodeLink, and how to reach the agent behind its back."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool

    async def begin(self) -> None:  # noqa: B027 - most need nothing
        """Make ready what links need."""

    @abstractmethod
    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> NodeLink:
        """A link to node gpu01, not yet open."""

    def agent(self) -> int:
        """The pid of the agent that is connected."""
        return int((self.spool / "lock").read_text())

    async def end(self) -> None:
        """End what the test left running."""
        end_all(self.spool)


class Local(Way):
    """A subprocess on this machine."""

    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> NodeLink:
        host = replace(HOST, spool=str(self.spool))
        return LocalLink("gpu01", host, ping_s=ping_s, silence_s=silence_s)


class Ssh(Way):
    """An SSH server on the loopback interface: agents are pushed and started as on a host far away."""

    def __init__(self, spool: Path) -> None:
        super().__init__(spool)
        self.sshd = Sshd(spool.parent / "host")

    async def begin(self) -> None:
        await self.sshd.start()
        self.pinned = {"gpu01": key_line(self.sshd.host_key)}
        self.connector = SshConnector(KnownHosts(lambda: self.pinned), config=self.sshd.config)

    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> SshLink:
        host = replace(
            HOST,
            ssh=f"somebody@127.0.0.1:{self.sshd.port}",
            identity=str(self.sshd.identity),
            python=sys.executable,
            spool=str(self.spool),
        )
        return SshLink("gpu01", host, self.connector, ping_s=ping_s, silence_s=silence_s)

    async def end(self) -> None:
        await self.sshd.stop()
        await super().end()
        await self.sshd.emptied()


WAYS: dict[str, type[Way]] = {"local": Local, "ssh": Ssh}


class Listener:
    """Everything a link delivered, in order."""

    def __init__(self) -> None:
        self.heard: list[AgentFrame | LinkLost] = []
        self._news = asyncio.Event()

    def deliver(self, node: str, frame: AgentFrame | LinkLost) -> str:
        """What is given to `open`."""
        assert node == "gpu01"
        self.heard.append(frame)
        self._news.set()
        return ""

    async def until(self, wanted: Callable[[], T | None]) -> T:
        """Wait until what was heard makes `wanted` answer something."""
        async with asyncio.timeout(PATIENCE_S):
            while not (answer := wanted()):
                self._news.clear()
                await self._news.wait()
            return answer

    async def nth(self, kind: type[T], number: int = 1) -> T:
        """The nth frame of a kind."""
        return (await self.until(lambda: self._of(kind)[number - 1 : number]))[0]

    async def status(self, job: int, ended: bool) -> AttemptStatus:
        """Wait for the report that an attempt runs, or has ended."""

        def found() -> list[AttemptStatus]:
            statuses = [report.status for report in self._of(Report)]
            hellos = [status for hello in self._of(Hello) for status in hello.attempts]
            return [
                each
                for each in statuses + hellos
                if each.job == job and (each.ended_at is not None if ended else each.pid is not None)
            ]

        return (await self.until(found))[0]

    def _of(self, kind: type[T]) -> list[T]:
        return [each for each in self.heard if isinstance(each, kind)]
