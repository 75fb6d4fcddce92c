"""Starts the agent on a host over one SSH channel: finds a Python interpreter, sends the agent to the host
and starts the agent.

The host needs no SFTP server, and the user's login shell may be any shell. Lines that the shell's start-up
files print are skipped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass

import asyncssh

from controller.nodes.agent.frozen import COMMAND as FROZEN_COMMAND
from controller.nodes.agent.frozen import FrozenAgent, frozen_agent
from controller.nodes.agent.last_line import READ, LastLine
from controller.nodes.agent.zipapp import Bundle
from controller.nodes.reconnecting import CannotConnect
from wire.text import printable

log = logging.getLogger(__name__)

PYTHONS = ("python3", *(f"python3.{minor}" for minor in (13, 12, 11, 10, 9)), "/opt/*/bin/python3")
"""The Python interpreters that are tried if none is configured. On many hosts, python3 itself is too old."""
BOOTSTRAP_S, FROZEN_BOOTSTRAP_S = 20.0, 180.0
"""The most seconds until the agent must run: BOOTSTRAP_S for an agent that uses a Python of the host,
FROZEN_BOOTSTRAP_S for an agent with its own Python, which is thirty times as large.
"""
PARTING_S = 5.0
"""Seconds to wait for the exit code and the last output of a program that has closed its output."""
MAX_LOGIN_OUTPUT = 1 << 18
"""The most bytes that the login shell's start-up files may print before the command runs."""
TRY_S = 6
"""The most seconds that a Python interpreter may take to print its version."""
_FIND = (
    "exec /bin/sh -c '"
    # A process on the host kills a Python interpreter that takes too long, because the SSH server may not
    # pass signals to the interpreter. The trap ends `sleep`, which would otherwise outlive its shell.
    'limited() {{ "$@" < /dev/null & tried=$!; '
    '(sleep {try_s} & nap=$!; trap "kill $nap; exit" TERM; wait $nap; kill -9 $tried) > /dev/null 2>&1 & '
    "watch=$!; "
    "wait $tried 2> /dev/null; ended=$?; kill $watch 2> /dev/null; return $ended; }}; "
    'PATH="${{PATH:-/usr/bin}}:/usr/local/bin:/usr/bin:/bin"; export PATH; '
    'for python in {pythons}; do python=$(command -v "$python") || continue; '
    'limited "$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 9))" > /dev/null 2>&1 && '
    'exec "$python" -I -S -X utf8 -c "import sys, json; told = json.loads(sys.stdin.readline()); '
    'exec(told[0]); receive_agent(**told[1])"; '
    'seen="$seen, $python is $(limited "$python" -V 2>&1 | head -n 1)"; done; '
    'echo "corral finds no python$seen" >&2; exit 127'
    "'"
)
"""The shell command that finds a Python interpreter. The command is one line in single quotes, and contains
no single quote, backslash or `!` between them. So every login shell reads it in the same way.
"""
_NO_PYTHON = "corral finds no python"


class BootstrapFailed(CannotConnect):
    """Raised if the SSH login works but the agent does not start. `check` is the name under which `corral
    nodes check` shows the failure."""

    def __init__(self, check: str, why: str, remedy: str) -> None:
        super().__init__(why)
        self.check, self.remedy = check, remedy


class NoPython(BootstrapFailed):
    """Raised if the host has no Python that can run the agent."""


@dataclass(frozen=True, slots=True)
class BootstrappedAgent:
    """An agent that has been started over SSH and waits for its options on stdin. `home` is the agent's
    default directory on the host."""

    process: asyncssh.SSHClientProcess[bytes]
    words: LastLine
    home: str

    def send_options(self, options: list[str]) -> None:
        self.process.stdin.write(json.dumps(options).encode() + b"\n")


async def start_agent(
    connection: asyncssh.SSHClientConnection,
    python: str,
    home: str,
    made: Bundle,
) -> BootstrappedAgent:
    """Send the agent program `made` to the host, and start the agent program.

    `python` is the path of the Python interpreter on the host; if empty, search the host for a Python
    interpreter. `home` is the directory for the agent's files; if empty, ~/.corral is used. Raise
    BootstrapFailed, or the error of a broken connection.

    If the host has no Python that can run the agent, and `python` is empty, send an agent with its own
    Python. Only a controller that `make binary` has packed into one file contains such an agent.
    """
    command = _FIND.format(pythons=python or " ".join(PYTHONS), try_s=TRY_S)
    try:
        exchange = await _Bootstrap.open(connection, command, python, BOOTSTRAP_S)
        return await exchange.limited(exchange.hand_over(home, made))
    except NoPython as failed:
        frozen = frozen_agent()
        if frozen is None or python:
            raise
        log.info("%s: sending an agent with its own Python", failed)
        exchange = await _Bootstrap.open(connection, FROZEN_COMMAND, "", FROZEN_BOOTSTRAP_S)
        return await exchange.limited(exchange.hand_over_frozen(home, frozen))


class _Bootstrap:
    """The exchange of messages with agent/host/bootstrap.py, the program on the host that receives
    the agent.
    """

    def __init__(
        self, process: asyncssh.SSHClientProcess[bytes], python: str, patience_s: float = BOOTSTRAP_S
    ) -> None:
        self._process = process
        self._patience_s = patience_s
        self._python = python
        self._marker = [secrets.token_hex(8), secrets.token_hex(8)]
        self._words = LastLine(process.stderr)
        self._last_output = b""

    @classmethod
    async def open(
        cls, connection: asyncssh.SSHClientConnection, command: str, python: str, patience_s: float
    ) -> _Bootstrap:
        """Run `command` on the host, and return an object that exchanges messages with it."""
        try:
            process = await connection.create_process(command, encoding=None, window=READ)
        except asyncssh.ChannelOpenError as error:
            raise BootstrapFailed(
                "login",
                f"the login succeeds, but the SSH server opens no session: {printable(error.reason, 200)}",
                "Look at MaxSessions in the host's sshd_config, and at the log of its SSH server.",
            ) from None
        return cls(process, python, patience_s)

    async def limited(self, handing_over: Awaitable[BootstrappedAgent]) -> BootstrappedAgent:
        """Await `handing_over`. Kill the process on the host if `handing_over` fails or takes too long."""
        try:
            async with asyncio.timeout(self._patience_s):
                return await handing_over
        except TimeoutError:
            # Kill the process on the host. Otherwise the process would wait forever, and each later try to
            # connect would add one more.
            self._process.kill()
            raise self._silent() from None
        except BaseException:
            # Also kill the process if this task is cancelled, for example because the node is removed.
            self._process.kill()
            raise

    async def hand_over(self, home: str, made: Bundle) -> BootstrappedAgent:
        facts = {"word": self._marker, "name": made.name, "size": len(made.data), "digest": made.digest}
        first = json.dumps([made.bootstrap, {**facts, "home": home}])
        return await self._exchange(first.encode() + b"\n", made.data)

    async def hand_over_frozen(self, home: str, frozen: FrozenAgent) -> BootstrappedAgent:
        return await self._exchange(frozen.script(self._marker, home), frozen.data)

    async def _exchange(self, script: bytes, data: bytes) -> BootstrappedAgent:
        self._send(script)
        what, detail = await self._answer()
        if what == "wants":
            self._send(data)
            what, detail = await self._answer()
        if what != "ready":
            raise BootstrapFailed(
                "files",
                f"the agent's files cannot be written: {printable(detail, 300)}",
                "Free disk space on the host, or name another writable directory with --spool.",
            )
        return BootstrappedAgent(self._process, self._words, detail)

    def _send(self, data: bytes) -> None:
        # If the program has ended, ignore the error here, because _answer() reports the reason.
        with suppress(BrokenPipeError):
            self._process.stdin.write(data)

    async def _answer(self) -> tuple[str, str]:
        """Return the next message of the program on the host, as (kind of message, text).

        Messages begin with a random marker. Lines without the marker are skipped, because the login shell's
        start-up files have printed them.
        """
        word, heard = "".join(self._marker).encode(), 0
        while heard < MAX_LOGIN_OUTPUT:
            line = await self._process.stdout.readline()
            if not line:
                raise await self._ended()
            heard += len(line)
            _, found, rest = line.partition(word)
            if found:
                what, detail = json.loads(rest)
                return what, detail
            if self._marker[0].encode() in line:
                raise self._login_error("it sends its input back")
            self._last_output = line.strip() or self._last_output
        raise self._login_error(f"its output does not end, and {self._last()}")

    async def _ended(self) -> BootstrapFailed:
        """Return the error to raise when the SSH session ended before the agent ran."""
        words = await self._words.end(PARTING_S)
        if words.startswith(_NO_PYTHON):
            seen = words[len(_NO_PYTHON) + 2 :]
            if self._python:
                why = seen or f"{self._python} is not found"
            else:
                why = "there is no Python 3.9 or newer" + (f": {seen}" if seen else "")
            return NoPython(
                "Python", why, "Install Python 3.9 or newer on the host, or name one with --python."
            )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait_closed(), PARTING_S)
        status = self._process.exit_status
        how = "" if status is None else f" with exit code {status}"
        return self._login_error(f"it ended{how}, and {self._last()}")

    def _silent(self) -> BootstrapFailed:
        """Return the error to raise when the program on the host has not answered in time."""
        return self._login_error(f"it sent no answer within {self._patience_s:g} s, and {self._last()}")

    def _last(self) -> str:
        last = self._words.now() or printable(self._last_output.decode("utf-8", "replace"), 300)
        return f"its last line was: {last}" if last else "it printed nothing"

    def _login_error(self, why: str) -> BootstrapFailed:
        return BootstrapFailed(
            "login",
            f"the login shell does not run the agent's command: {why}",
            "Try 'ssh HOST true': the login shell must run commands (no nologin, no forced command), "
            "and its start-up files (.bashrc …) must neither exit nor wait.",
        )
