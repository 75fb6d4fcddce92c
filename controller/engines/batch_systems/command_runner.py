"""Runs shell commands on a machine that has the commands of the batch system: on this machine, or on a login
node by SSH.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import secrets
import shlex
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import asyncssh

from controller.engines.contract import EngineUnavailable
from controller.nodes.agent.bootstrap import BootstrappedAgent
from controller.nodes.agent.last_line import LastLine
from controller.nodes.local import AgentPipes
from controller.nodes.reconnecting import CannotConnect
from controller.nodes.session import AgentChannel
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts
from controller.nodes.ssh.link import SshChannel
from controller.nodes.ssh.ssh_attempt import describe_error
from wire.cluster.hosts import parse_ssh_address
from wire.text import printable

READ = 64 * 1024
_SECTION = "corral-section"
MOST_OUTPUT = 64 << 20
"""The most bytes that a command may print. A command that prints more is ended, because the controller keeps
its output in memory.
"""
_END_S = 5.0
"""Seconds for which the end of a killed command is awaited. A program that has left the command's process
group may keep its pipes open.
"""
_KEPT = ("LANG", "SLURM_CONF", "PBS_CONF_FILE", "PBS_SERVER", "TZ")
"""The variables of the controller's environment that local commands of a batch system get. Other variables
could reach the jobs, because sbatch passes its environment on.
"""
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Completed:
    """The exit code, stdout and stderr of a shell command that has ended."""

    code: int
    out: str
    err: str

    @property
    def last_words(self) -> str:
        """Return the end of stderr for an error message; the exit code if stderr is empty."""
        return printable(self.err.strip()[-400:], 400) or f"exit code {self.code}"


class _OutputTooLong(Exception):
    """Raised if a command has printed more than MOST_OUTPUT bytes."""


def with_sections(*commands: str) -> str:
    """Return one command that runs all these commands. Its output has for each command the stdout, the exit
    code and the stderr, between marker lines.
    """
    errors = "e=$(mktemp) || exit 1; trap 'rm -f \"$e\"' EXIT"
    parts = [
        f'({command}\n) 2> "$e"; c=$?; echo; echo {_SECTION} $c; cat "$e"; echo; echo {_SECTION}'
        for command in commands
    ]
    return "\n".join([errors, *parts])


def outputs_of(done: Completed, count: int, name: str) -> list[Completed]:
    """Return the outputs of the `count` commands of `with_sections`. `name` is the name of the batch system
    for messages.
    """
    parts = done.out.split(f"\n{_SECTION}")
    if len(parts) != 2 * count + 1:
        raise EngineUnavailable(f"{name} gave an answer in an unknown form: {done.last_words}")
    found = []
    for out, rest in zip(parts[0::2], parts[1::2], strict=False):
        code, _, err = rest.partition("\n")
        found.append(Completed(int(code), out.removeprefix("\n"), err))
    return found


class CommandRunner(Protocol):
    """Runs commands of /bin/sh."""

    async def run(self, command: str, stdin: bytes = b"") -> Completed:
        """Run a command to its end. Raise EngineUnavailable if it is unknown whether the command has run to
        its end.
        """

    def stream(self, command: str) -> AsyncIterator[bytes]:
        """Run a command and yield its output. The command is ended when the caller stops reading."""

    async def open(self, command: str) -> AgentChannel:
        """Start a command that connects stdin and stdout to an agent, and return the channel."""

    async def close(self) -> None:
        """Close the connection."""


def marked(command: str) -> tuple[str, re.Pattern[str]]:
    """Return the command with a line before and after its output, and a pattern that finds the output.

    A login shell may print text before the output, and a lost connection may cut the output off. If the line
    after the output is missing, the output is not complete.
    """
    word = f"corral-{secrets.token_hex(8)}"
    begin, end = f"{word[:12]}''{word[12:]}-begin", f"{word[:12]}''{word[12:]}-end"
    # Put quotes inside the words, so that a shell that echoes its input does not print the words as the
    # pattern expects them.
    text = f"echo {begin}\n(\n{command}\n)\ncode=$?\necho\necho {end} $code\n"
    return text, re.compile(rf"^{word}-begin\n(.*)\n{word}-end (\d+)$", re.DOTALL | re.MULTILINE)


def _completed(out: bytes, err: bytes, pattern: re.Pattern[str], where: str) -> Completed:
    words = err.decode("utf-8", "replace")
    match = pattern.search(out.decode("utf-8", "surrogateescape"))
    if match is None:
        said = printable(words.strip()[-300:], 300) or "it printed nothing"
        raise EngineUnavailable(f"the answer of {where} is not complete: {said}")
    return Completed(int(match[2]), match[1], words)


class LocalRunner:
    """Runs commands on the controller's machine, with a small environment."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        account = pwd.getpwuid(os.geteuid())
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._environment = {
            "PATH": os.environ.get("PATH", _PATH),
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            **kept,
        }

    async def _start(self, command: str) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", command),
                cwd="/",
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnavailable(f"no command can be started on this machine: {error.strerror}") from None

    async def run(self, command: str, stdin: bytes = b"") -> Completed:
        text, pattern = marked(command)
        process = await self._start(text)
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await _outputs(process, stdin)
        except TimeoutError:
            raise EngineUnavailable(
                f"a command of the batch system gave no answer within {self._timeout_s:g} s"
            ) from None
        except _OutputTooLong:
            raise EngineUnavailable(_too_long("a command of the batch system")) from None
        finally:
            await _end(process)
        return _completed(out, err, pattern, "this machine")

    async def stream(self, command: str) -> AsyncIterator[bytes]:
        process = await self._start(command)
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            while data := await process.stdout.read(READ):
                yield data
        finally:
            await _end(process)

    async def open(self, command: str) -> AgentPipes:
        return AgentPipes(await self._start(command))

    async def close(self) -> None:
        """Do nothing, because there is no connection."""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a command that still runs, with its child processes."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            # Read to the ends of the pipes, because asyncio closes them only then.
            await asyncio.gather(_discard(process.stdout), _discard(process.stderr), process.wait())


async def _discard(stream: asyncio.StreamReader | None) -> None:
    assert stream is not None
    while await stream.read(READ):
        pass


async def _outputs(
    process: asyncio.subprocess.Process | asyncssh.SSHClientProcess[bytes], stdin: bytes
) -> tuple[bytes, bytes]:
    """Write the input of a command, and return (stdout, stderr) when the command has closed both. Raise
    _OutputTooLong if one of them is too long.
    """
    tasks = [
        asyncio.ensure_future(each)
        for each in (_whole(process.stdout), _whole(process.stderr), _feed(process.stdin, stdin))
    ]
    try:
        out, err, _ = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert out is not None
    assert err is not None
    return out, err


async def _whole(stream: asyncio.StreamReader | asyncssh.SSHReader[bytes] | None) -> bytes:
    """Return all output of a stream. Raise _OutputTooLong after MOST_OUTPUT bytes."""
    assert stream is not None
    found = bytearray()
    while data := await stream.read(READ):
        found += data
        if len(found) > MOST_OUTPUT:
            raise _OutputTooLong
    return bytes(found)


async def _feed(stream: asyncio.StreamWriter | asyncssh.SSHWriter[bytes] | None, data: bytes) -> None:
    """Write the input of a command, and close the input. It is no error if the command does not read it."""
    assert stream is not None
    with contextlib.suppress(OSError):
        stream.write(data)
        await stream.drain()
        stream.write_eof()


def _too_long(what: str) -> str:
    return f"{what} printed more than {MOST_OUTPUT >> 20} MiB"


class SshRunner:
    """Runs commands on a login node. One SSH connection stays open. If it is lost, a new one is
    opened.

    The host key must be in the known_hosts file of the controller's user.
    """

    def __init__(self, login: str, identity: str, timeout_s: float) -> None:
        self._login = login
        self._identity = identity
        self._timeout_s = timeout_s
        self._connector = SshConnector(KnownHosts(dict), connect_s=timeout_s)
        self._connection: asyncssh.SSHClientConnection | None = None
        self._opening = asyncio.Lock()

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._opening:
            if self._connection is None or self._connection.is_closed():
                try:
                    async with self._connector.turn():
                        address = parse_ssh_address(self._login)
                        self._connection = await self._connector.connect(self._login, address, self._identity)
                except CannotConnect as error:
                    raise EngineUnavailable(f"the login node {self._login}: {error}") from None
            return self._connection

    async def run(self, command: str, stdin: bytes = b"") -> Completed:
        text, pattern = marked(command)
        connection = await self._connected()
        try:
            async with asyncio.timeout(self._timeout_s):
                process = await connection.create_process(_for_login_shell(text), encoding=None)
                try:
                    out, err = await _outputs(process, stdin)
                finally:
                    process.close()
        except _OutputTooLong:
            raise EngineUnavailable(_too_long(f"a command on the login node {self._login}")) from None
        except TimeoutError:
            connection.abort()
            raise EngineUnavailable(
                f"the login node {self._login} gave no answer within {self._timeout_s:g} s"
            ) from None
        except (asyncssh.Error, OSError) as error:
            connection.abort()
            raise EngineUnavailable(f"the login node {self._login}: {describe_error(error)}") from None
        return _completed(out, err, pattern, f"the login node {self._login}")

    async def stream(self, command: str) -> AsyncIterator[bytes]:
        connection = await self._connected()
        try:
            process = await connection.create_process(_for_login_shell(command), encoding=None)
            try:
                while data := await process.stdout.read(READ):
                    yield data
            finally:
                process.close()
        except (asyncssh.Error, OSError) as error:
            raise EngineUnavailable(f"the login node {self._login}: {describe_error(error)}") from None

    async def open(self, command: str) -> SshChannel:
        # Use a connection of its own, because the channel to an agent closes its connection at its end.
        try:
            async with self._connector.turn():
                address = parse_ssh_address(self._login)
                connection = await self._connector.connect(self._login, address, self._identity)
                process = await connection.create_process(_for_login_shell(command), encoding=None)
        except (asyncssh.Error, OSError) as error:
            raise CannotConnect(describe_error(error)) from None
        return SshChannel(connection, BootstrappedAgent(process, LastLine(process.stderr), ""))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            with contextlib.suppress(asyncssh.Error, OSError):
                await self._connection.wait_closed()


def _for_login_shell(command: str) -> str:
    """Return the command as a text that login shells such as bash, zsh, dash and fish pass to /bin/sh."""
    return "exec /bin/sh -c " + shlex.quote(command)
