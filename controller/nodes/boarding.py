"""How an agent comes to a host: one channel is asked for a Python, given the agent, and then speaks for it.

There is no SFTP, and nothing that a shell there could misread. What a login prints by itself is passed over.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass

import asyncssh

from controller.nodes.bundle import Bundle
from controller.nodes.reconnecting import CannotConnect
from wire.text import plain

PYTHONS = ("python3", *(f"python3.{minor}" for minor in (13, 12, 11, 10, 9)), "/opt/*/bin/python3")
"""Where no Python is named: on many hosts python3 is too old, and a newer one stands beside it."""
BOARD_S = 20.0
PARTING_S = 5.0
"""Who has ended still says how and why: on a busy host that is not there at once."""
CHATTER = 1 << 18
"""What a login may print before it comes to our command."""
READ = 1 << 20
_FIND = (
    "exec /bin/sh -c '"
    'PATH="${{PATH:-/usr/bin}}:/usr/local/bin:/usr/bin:/bin"; export PATH; '
    'for python in {pythons}; do python=$(command -v "$python") || continue; '
    '"$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 9))" < /dev/null > /dev/null 2>&1 && '
    'exec "$python" -I -S -X utf8 -c "import sys, json; told = json.loads(sys.stdin.readline()); '
    'exec(told[0]); arrive(**told[1])"; '
    'seen="$seen, $python is $("$python" -V 2>&1 < /dev/null | head -n 1)"; done; '
    'echo "corral finds no python$seen" >&2; exit 127'
    "'"
)
"""Every shell reads this the same way: one line, single quotes, and in between no quote, backslash or `!`."""
_NO_PYTHON = "corral finds no python"


class CannotBoard(CannotConnect):
    """We are let in, and yet no agent comes to be there; `check` is what a preflight calls it."""

    def __init__(self, check: str, why: str, remedy: str) -> None:
        super().__init__(why)
        self.check, self.remedy = check, remedy


class LastWords:
    """The last line that somebody writes; read to the end, for a full channel would stop the writer."""

    def __init__(self, source: asyncssh.SSHReader[bytes]) -> None:
        self._last = b""
        self._task = asyncio.get_running_loop().create_task(self._listen(source))

    async def _listen(self, source: asyncssh.SSHReader[bytes]) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await source.read(READ):
                lines = [line for line in (self._last + data)[-2_000:].split(b"\n") if line.strip()]
                self._last = lines[-1] if lines else b""

    async def end(self, patience_s: float) -> str:
        """What they were, once the writer has ended or this time is over."""
        await asyncio.wait([self._task], timeout=patience_s)
        self._task.cancel()
        return self.now()

    def now(self) -> str:
        """What they are so far."""
        return plain(self._last.decode("utf-8", "replace").strip(), 500)


@dataclass(frozen=True, slots=True)
class Boarded:
    """An agent that waits for its options, and where it keeps things unless they say otherwise."""

    process: asyncssh.SSHClientProcess[bytes]
    words: LastWords
    home: str

    def tell(self, options: list[str]) -> None:
        """The options it waits for."""
        self.process.stdin.write(json.dumps(options).encode() + b"\n")


async def board(
    connection: asyncssh.SSHClientConnection,
    python: str,
    home: str,
    made: Bundle,
) -> Boarded:
    """The agent, started on a host; raises CannotBoard, or what a broken connection raises."""
    command = _FIND.format(pythons=python or " ".join(PYTHONS))
    try:
        process = await connection.create_process(command, encoding=None, window=READ)
    except asyncssh.ChannelOpenError as error:
        raise CannotBoard(
            "login",
            f"it lets us in, and then opens no session: {plain(error.reason, 200)}",
            "Look at MaxSessions in its sshd_config, and at the server's log there.",
        ) from None
    talk = _Boarding(process, python)
    try:
        async with asyncio.timeout(BOARD_S):
            return await talk.hand_over(home, made)
    except TimeoutError:
        process.kill()  # whatever waits there would wait on, and one more with every try
        raise talk.silent() from None
    except CannotBoard:
        process.kill()
        raise


class _Boarding:
    """The talk with what runs first there (agent/arrival.py)."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], python: str) -> None:
        self._process = process
        self._python = python
        self._word = [secrets.token_hex(8), secrets.token_hex(8)]
        self._words = LastWords(process.stderr)
        self._chatter = b""

    async def hand_over(self, home: str, made: Bundle) -> Boarded:
        facts = {"word": self._word, "name": made.name, "size": len(made.data), "digest": made.digest}
        first = json.dumps([made.arrival, {**facts, "home": home}])
        self._process.stdin.write(first.encode() + b"\n")
        what, detail = await self._answer()
        if what == "wants":
            self._process.stdin.write(made.data)
            what, detail = await self._answer()
        if what != "ready":
            raise CannotBoard(
                "files",
                f"the agent cannot be kept there: {plain(detail, 300)}",
                "Make room there, or name a directory with room that is ours to write with --spool.",
            )
        return Boarded(self._process, self._words, detail)

    async def _answer(self) -> tuple[str, str]:
        """The next line that has our word in it; whatever else comes is a login's chatter."""
        word, heard = "".join(self._word).encode(), 0
        while heard < CHATTER:
            line = await self._process.stdout.readline()
            if not line:
                raise await self._ended()
            heard += len(line)
            _, found, rest = line.partition(word)
            if found:
                what, detail = json.loads(rest)
                return what, detail
            if self._word[0].encode() in line:
                raise self._unruly("it says back what it is told")
            self._chatter = line.strip() or self._chatter
        raise self._unruly(f"it prints without end: {self._last()}")

    async def _ended(self) -> CannotBoard:
        """It was over before our command had its turn, or no Python came of it."""
        words = await self._words.end(PARTING_S)
        if words.startswith(_NO_PYTHON):
            seen = words[len(_NO_PYTHON) + 2 :]
            if self._python:
                why = seen or f"{self._python} is not found"
            else:
                why = "there is no Python 3.9 or newer" + (f": {seen}" if seen else "")
            return CannotBoard("Python", why, "Install Python 3.9 or newer there, or name one with --python.")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait_closed(), PARTING_S)
        status = self._process.exit_status
        how = "" if status is None else f" with exit code {status}"
        return self._unruly(f"it ended{how}, and {self._last()}")

    def silent(self) -> CannotBoard:
        """Something there waits."""
        return self._unruly(f"nothing came of it in {BOARD_S:g} s, and {self._last()}")

    def _last(self) -> str:
        last = self._words.now() or plain(self._chatter.decode("utf-8", "replace"), 300)
        return f"the last words were: {last}" if last else "it said nothing"

    def _unruly(self, why: str) -> CannotBoard:
        return CannotBoard(
            "login",
            f"a login there does not run our command: {why}",
            "Try 'ssh HOST true': the shell there must run commands (no nologin, no forced command), "
            "and its start-up files (.bashrc …) must neither exit nor wait.",
        )
