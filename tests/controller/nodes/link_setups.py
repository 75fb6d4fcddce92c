"""Kinds of links for the contract tests, and a listener that records what a link delivers."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from controller.engines.engine_links import PilotLink
from controller.nodes.link import LinkLost, NodeLink
from controller.nodes.local import LocalLink
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts, key_line
from controller.nodes.ssh.link import SshLink
from tests.agent.agent_process import end_all
from tests.controller.nodes.ssh_server import SshServer
from tests.limits import PATIENCE_S
from wire.agent.frames import AgentFrame
from wire.agent.reports import AttemptStatus, Hello, Report
from wire.cluster.hosts import HostSpec

HOST = HostSpec("", gpus="simulated:2xH100", run_as_self=True)
T = TypeVar("T")


class LinkSetup(ABC):
    """One implementation of NodeLink, and direct access to its agent."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool

    async def begin(self) -> None:  # noqa: B027 - most need nothing
        """Start the servers that the links need."""

    @abstractmethod
    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> NodeLink:
        """A link to node gpu01, not yet open."""

    def agent(self) -> int:
        """The pid of the agent that is connected."""
        return int((self.spool / "lock").read_text())

    async def end(self) -> None:
        """End all processes of the test."""
        end_all(self.spool)


class LocalLinkSetup(LinkSetup):
    """A subprocess on this machine."""

    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> NodeLink:
        host = replace(HOST, spool=str(self.spool))
        return LocalLink("gpu01", host, ping_s=ping_s, silence_s=silence_s)


class SshLinkSetup(LinkSetup):
    """An SSH server on the loopback interface: agents are pushed and started as on a remote host."""

    def __init__(self, spool: Path) -> None:
        super().__init__(spool)
        self.server = SshServer(spool.parent / "host")

    async def begin(self) -> None:
        await self.server.start()
        self.pinned = {"gpu01": key_line(self.server.host_key)}
        self.connector = SshConnector(KnownHosts(lambda: self.pinned), config=self.server.config)

    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> SshLink:
        host = replace(
            HOST,
            ssh=f"somebody@127.0.0.1:{self.server.port}",
            identity=str(self.server.identity),
            python=sys.executable,
            spool=str(self.spool),
        )
        return SshLink("gpu01", host, self.connector, ping_s=ping_s, silence_s=silence_s)

    async def end(self) -> None:
        await self.server.stop()
        await super().end()
        await self.server.wait_until_commands_end()


class PilotLinkSetup(LocalLinkSetup):
    """The agent of a pilot node, to which an execution engine opens the channel."""

    def link(self, ping_s: float = 5.0, silence_s: float = 15.0) -> NodeLink:
        host = replace(HOST, spool=str(self.spool))
        return PilotLink("gpu01", LocalLink("gpu01", host).connect, ping_s, silence_s)


LINK_SETUPS: dict[str, type[LinkSetup]] = {
    "local": LocalLinkSetup,
    "pilot": PilotLinkSetup,
    "ssh": SshLinkSetup,
}


class FrameListener:
    """Records all frames and states that a link delivers, in order."""

    def __init__(self) -> None:
        self.received: list[AgentFrame | LinkLost] = []
        self._news = asyncio.Event()

    def deliver(self, node: str, frame: AgentFrame | LinkLost) -> str:
        """The callback for `open`."""
        assert node == "gpu01"
        self.received.append(frame)
        self._news.set()
        return ""

    async def until(self, found_in_received: Callable[[], T | None]) -> T:
        """Wait until `found_in_received` returns a true value for what was received."""
        async with asyncio.timeout(PATIENCE_S):
            while not (answer := found_in_received()):
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
        return [each for each in self.received if isinstance(each, kind)]
