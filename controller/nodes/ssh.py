"""A link to an agent on a host that is reached by SSH: nothing to install there, no port to open."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import asyncssh

from controller.nodes.arguments import AgentOptions
from controller.nodes.boarding import READ, Boarded, board
from controller.nodes.bundle import bundle
from controller.nodes.reconnecting import CannotConnect, ReconnectingLink
from controller.nodes.refusals import sentence
from controller.nodes.sshconnector import SshConnector
from wire.hosts import SshAddress


@dataclass(frozen=True, slots=True)
class SshHost:
    """How a host is reached, and how its agent runs there."""

    address: SshAddress
    identity: str = ""
    python: str = ""
    """Looked for, if left out."""
    spool: str = ""
    """Where the agent keeps everything; below the home directory of whom we are there, if left out."""
    reached_at: str = ""
    """Where other nodes reach it; where the controller does, if left out."""
    agent: AgentOptions = field(default_factory=AgentOptions)

    def spool_of(self, node: str, home: str) -> str:
        """Where its attempts are recorded."""
        return self.spool or f"{home}/nodes/{node}"


class SshLink(ReconnectingLink):
    """Takes the agent there, starts it, and starts it again whenever it or the line ends."""

    def __init__(
        self,
        name: str,
        host: SshHost,
        connector: SshConnector,
        *,
        ping_s: float = 5.0,
        silence_s: float = 15.0,
    ) -> None:
        super().__init__(name, ping_s, silence_s)
        self.host = host
        self._connector = connector

    async def connect(self) -> SshLine:
        """One connection, the agent on it, and running."""
        async with self._connector.turn():
            connection = await self._connector.connect(self.name, self.host.address, self.host.identity)
            try:
                return await self._start(connection)
            except (asyncssh.Error, OSError) as error:
                connection.abort()
                raise CannotConnect(sentence(error)) from None
            except BaseException:
                connection.abort()
                raise

    async def _start(self, connection: asyncssh.SSHClientConnection) -> SshLine:
        made = await asyncio.get_running_loop().run_in_executor(None, bundle)
        host = self.host
        boarded = await board(connection, host.python, host.spool, made)
        spool = host.spool_of(self.name, boarded.home)
        boarded.tell(
            [*host.agent.arguments(self.name, spool), "--replace", "--address", self._where(connection)]
        )
        return SshLine(connection, boarded)

    def _where(self, connection: asyncssh.SSHClientConnection) -> str:
        """Where other nodes reach this one; behind a jump host nobody knows its number, so by its name."""
        if self.host.reached_at:
            return self.host.reached_at
        peer = connection.get_extra_info("peername")
        return str((peer and peer[0]) or connection.get_extra_info("host") or self.host.address.host)


class SshLine:
    """The channel of an agent, and the connection it lives on."""

    def __init__(self, connection: asyncssh.SSHClientConnection, boarded: Boarded) -> None:
        self._connection = connection
        self._process = boarded.process
        self._words = boarded.words
        self._why = ""

    async def read(self) -> bytes:
        """What the agent wrote."""
        try:
            return await self._process.stdout.read(READ)
        except (asyncssh.Error, OSError) as error:
            self._why = sentence(error)
            return b""

    def write(self, data: bytes) -> None:
        """Queue bytes for the agent."""
        with suppress(OSError, asyncssh.Error):  # the reader hears of it as well
            self._process.stdin.write(data)

    def unread(self) -> int:
        """Bytes that the other end has left us with."""
        return self._process.channel.get_write_buffer_size()

    async def end(self, patience_s: float) -> str:
        """Close the channel and see the agent out, else leave it to the next one to replace."""
        with suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()
        try:
            async with asyncio.timeout(patience_s):
                await self._process.wait_closed()
                self._connection.close()
                await self._connection.wait_closed()
        except TimeoutError:
            with suppress(OSError, asyncssh.Error):
                self._process.kill()
            self._connection.abort()
        words, status = await self._words.end(patience_s), self._process.exit_status
        if not words and status:
            words = self._why or f"exit code {status}"
        return words.removeprefix("agent: ") or self._why
