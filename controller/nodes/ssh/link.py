"""A connection by SSH to the agent on a host.

No package is installed on the host, and the agent opens no network port.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncssh

from controller.nodes.agent.arguments import agent_arguments
from controller.nodes.agent.bootstrap import BootstrappedAgent, start_agent
from controller.nodes.agent.last_line import READ
from controller.nodes.agent.zipapp import bundle
from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.reconnecting import CannotConnect, ReconnectingLink
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.ssh_attempt import describe_error
from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.cluster.hosts import HostSpec, parse_ssh_address


class SshLink(ReconnectingLink):
    """A connection by SSH to the agent on a host. Each time a connection is opened, the agent program is sent
    if the host lacks it, and started.
    """

    def __init__(
        self,
        name: str,
        host: HostSpec,
        connector: SshConnector,
        jobs: JobPolicy = DEFAULT_JOB_POLICY,
        cluster: str = "",
        *,
        ping_s: float = 5.0,
        silence_s: float = 15.0,
        leader: Leadership = ALONE,
    ) -> None:
        super().__init__(name, ping_s, silence_s, leader)
        self.host = host
        self._connector = connector
        self._jobs = jobs
        self._cluster = cluster

    async def connect(self) -> SshChannel:
        """Connect to the host by SSH, send the agent program and start the agent."""
        async with self._connector.turn():
            address = parse_ssh_address(self.host.ssh)
            connection = await self._connector.connect(self.name, address, self.host.identity)
            try:
                return await self._start(connection)
            except (asyncssh.Error, OSError) as error:
                connection.abort()
                raise CannotConnect(describe_error(error)) from None
            except BaseException:
                connection.abort()
                raise

    async def _start(self, connection: asyncssh.SSHClientConnection) -> SshChannel:
        made = await asyncio.get_running_loop().run_in_executor(None, bundle)
        host = self.host
        started = await start_agent(connection, host.python, host.spool, made)
        epoch = self.leader.epoch()
        arguments = agent_arguments(self.name, host, started.home, self._jobs, self._cluster, epoch)
        started.send_options([*arguments, "--replace", "--address", self._where(connection)])
        return SshChannel(connection, started)

    def _where(self, connection: asyncssh.SSHClientConnection) -> str:
        """Return the address at which other nodes reach this node: the configured address, or else the one of
        the SSH connection. Behind a jump host this is the host name, because the IP address of the connection
        is that of the jump host.
        """
        if self.host.address:
            return self.host.address
        peer = connection.get_extra_info("peername")
        return str(
            (peer and peer[0]) or connection.get_extra_info("host") or parse_ssh_address(self.host.ssh).host
        )


class SshChannel:
    """The SSH connection to a host, with the channel to the agent."""

    def __init__(self, connection: asyncssh.SSHClientConnection, started: BootstrappedAgent) -> None:
        self._connection = connection
        self._process = started.process
        self._words = started.words
        self._why = ""

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(READ)
        except (asyncssh.Error, OSError) as error:
            self._why = describe_error(error)
            return b""

    def write(self, data: bytes) -> None:
        # Ignore a failed write, because read() reports the loss of the connection.
        with suppress(OSError, asyncssh.Error):
            self._process.stdin.write(data)

    def unread(self) -> int:
        return self._process.channel.get_write_buffer_size()

    async def end(self, patience_s: float) -> str:
        """Close the channel, and wait up to `patience_s` seconds for the agent to end. Return the last line
        that the agent wrote to stderr, or the reason why the connection was lost, or the exit code.

        An agent that does not end in time is killed if the SSH server passes signals on. If not, the next
        agent that starts on this host ends it.
        """
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
