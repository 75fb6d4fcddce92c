"""A connection to an agent that runs on this machine as a subprocess of the controller."""

from __future__ import annotations

import asyncio
import contextlib

from controller.nodes.agent.arguments import agent_arguments
from controller.nodes.agent.last_line import READ, LastLine
from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.reconnecting import CannotConnect, ReconnectingLink
from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.cluster.hosts import HostSpec
from wire.program_parts import AGENT

LAST_WORDS_S = 5.0
"""Seconds to wait for the last output of an agent that has closed its output."""


class LocalLink(ReconnectingLink):
    """Starts the agent of a node on this machine, and starts a new agent whenever the agent ends.

    The host settings must have a spool and no SSH address.
    """

    def __init__(
        self,
        name: str,
        host: HostSpec,
        jobs: JobPolicy = DEFAULT_JOB_POLICY,
        cluster: str = "",
        *,
        ping_s: float = 5.0,
        silence_s: float = 15.0,
        leader: Leadership = ALONE,
    ) -> None:
        super().__init__(name, ping_s, silence_s, leader)
        self._host = host
        self._jobs = jobs
        self._cluster = cluster

    async def connect(self) -> AgentPipes:
        """Start the agent as a subprocess, and return its pipes. The subprocess has a session of its own
        (setsid), so that Ctrl-C in the controller's terminal does not stop the agent.
        """
        host, epoch = self._host, self.leader.epoch()
        arguments = agent_arguments(self.name, host, "", self._jobs, self._cluster, epoch)
        command = AGENT.command(*arguments, python=host.python)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                limit=READ,
            )
        except OSError as error:
            raise CannotConnect(f"the agent cannot be started with {command[0]}: {error.strerror}") from None
        return AgentPipes(process)


class AgentPipes:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self._in = process.stdin
        self._out = process.stdout
        self._words = LastLine(process.stderr)

    async def read(self) -> bytes:
        return await self._out.read(READ)

    def write(self, data: bytes) -> None:
        self._in.write(data)

    def unread(self) -> int:
        return self._in.transport.get_write_buffer_size()

    async def end(self, patience_s: float) -> str:
        # Close the pipe only once: if the agent has ended, its pipe is being closed already.
        if not self._in.transport.is_closing():
            self._in.close()
        try:
            await asyncio.wait_for(self.process.wait(), patience_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        return (await self._words.end(LAST_WORDS_S)).removeprefix("agent: ")
