"""A link to an agent on a host that is reached by SSH: nothing to install there, no port to open."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import asyncssh

from controller.nodes.arguments import AgentOptions
from controller.nodes.bundle import Bundle, bundle
from controller.nodes.reconnecting import CannotConnect, ReconnectingLink
from controller.nodes.sshconnector import SshConnector, sentence
from wire.frames import AgentFrame
from wire.hosts import SshAddress
from wire.text import plain

HOME = ".corral"
"""Beneath the home directory of whom we are there: bundles, and the spool if it has no place of its own."""
KEPT_BUNDLES = 5
"""An old agent's file is needed no more once it runs, but whoever goes back a version need not wait."""
_READ = 1 << 20
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")


@dataclass(frozen=True, slots=True)
class SshHost:
    """How a host is reached, and how its agent runs there."""

    address: SshAddress
    identity: str = ""
    python: str = "python3"
    spool: str = ""
    reached_at: str = ""
    """Where other nodes reach it; where the controller does, if left out."""
    agent: AgentOptions = field(default_factory=AgentOptions)


class SshLink(ReconnectingLink):
    """Pushes the agent where it is not, starts it, and starts it again whenever it or the line ends."""

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
        self._doubtful = False

    async def connect(self) -> SshLine:
        """One connection, the bundle on it, and the agent running."""
        async with self._connector.turn():
            connection = await self._connector.connect(self.name, self.host.address, self.host.identity)
            try:
                line = await self._start(connection)
            except (asyncssh.Error, OSError) as error:
                connection.abort()
                raise CannotConnect(sentence(error)) from None
            except BaseException:
                connection.abort()
                raise
        # A file of the right size may still be damaged: one whose agent says no hello is pushed once more.
        self._doubtful = not self._doubtful
        return line

    def _pass_on(self, frame: AgentFrame) -> None:
        self._doubtful = False
        super()._pass_on(frame)

    async def _start(self, connection: asyncssh.SSHClientConnection) -> SshLine:
        made = await asyncio.get_running_loop().run_in_executor(None, bundle)
        async with await files(connection) as sftp:
            home = PurePosixPath(str(await sftp.realpath("."))) / HOME
            place = home / "agents" / made.name
            await push(sftp, home, made, anew=self._doubtful)
        host = self.host
        for path in (str(place), host.python):
            if not _PLAIN_PATH.fullmatch(path):
                raise CannotConnect(f"the path {path!r} has characters that a shell there may misread")
        spool = host.spool or str(home / "nodes" / self.name)
        arguments = [
            *host.agent.arguments(self.name, spool),
            "--replace",
            "--address",
            self._where(connection),
        ]
        process = await connection.create_process(
            f"exec {host.python} -I -S -X utf8 {place} -", encoding=None, window=_READ
        )
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        return SshLine(connection, process)

    def _where(self, connection: asyncssh.SSHClientConnection) -> str:
        """Where other nodes reach this one; behind a jump host nobody knows its number, so by its name."""
        if self.host.reached_at:
            return self.host.reached_at
        peer = connection.get_extra_info("peername")
        return str((peer and peer[0]) or connection.get_extra_info("host") or self.host.address.host)


async def files(connection: asyncssh.SSHClientConnection) -> asyncssh.SFTPClient:
    """The host's files; raises CannotConnect where it does not hand them out."""
    try:
        return await connection.start_sftp_client()
    except asyncssh.ChannelOpenError:
        raise CannotConnect(
            "it offers no SFTP; its sshd_config needs the line 'Subsystem sftp internal-sftp'"
        ) from None


async def push(sftp: asyncssh.SFTPClient, home: PurePosixPath, made: Bundle, *, anew: bool = False) -> None:
    """The bundle is there afterwards, whole, whoever else pushes it at the same time."""
    folder = home / "agents"
    with suppress(asyncssh.SFTPNoSuchFile):
        if not anew and (await sftp.stat(str(folder / made.name))).size == len(made.data):
            return
    for each in (home, folder):
        if not await sftp.exists(str(each)):
            with suppress(asyncssh.SFTPFailure, asyncssh.SFTPFileAlreadyExists):  # somebody was faster
                await sftp.mkdir(str(each), asyncssh.SFTPAttrs(permissions=0o700))
    fresh = folder / f".{secrets.token_hex(8)}"
    async with sftp.open(str(fresh), "wb") as file:
        await file.write(made.data)
    await sftp.posix_rename(str(fresh), str(folder / made.name))
    await _tidy(sftp, folder, made.name)


async def _tidy(sftp: asyncssh.SFTPClient, folder: PurePosixPath, wanted: str) -> None:
    """Bundles of versions long gone go."""
    found = [each for each in await sftp.readdir(str(folder)) if str(each.filename).endswith(".pyz")]
    found.sort(key=lambda each: each.attrs.mtime or 0, reverse=True)
    for each in found[KEPT_BUNDLES:]:
        if each.filename != wanted:
            with suppress(asyncssh.SFTPError):
                await sftp.remove(str(folder / str(each.filename)))


class SshLine:
    """The channel of an agent, and the connection it lives on."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]
    ) -> None:
        self._connection = connection
        self._process = process
        self._why = ""
        self._words = asyncio.get_running_loop().create_task(_last_words(process.stderr))

    async def read(self) -> bytes:
        """What the agent wrote."""
        try:
            return await self._process.stdout.read(_READ)
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
        words, status = await self._words, self._process.exit_status
        if not words and status:
            words = self._why or f"exit code {status}"
        return words or self._why


async def _last_words(stderr: asyncssh.SSHReader[bytes]) -> str:
    """The last line somebody wrote; read to the end, for a full channel would stop the agent."""
    last = b""
    with suppress(asyncssh.Error, OSError):
        while data := await stderr.read(_READ):
            lines = [line for line in (last + data)[-2_000:].split(b"\n") if line.strip()]
            last = lines[-1] if lines else b""
    return plain(last.decode("utf-8", "replace"), 500).removeprefix("agent: ")
