"""An SSH server made with asyncssh that runs real commands, as a host would."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncssh

from tests.limits import PATIENCE_S

_READ = 1 << 18


class SshServer:
    """One server on a loopback port, with a home directory of the test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.home.mkdir(parents=True)
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.user_key = asyncssh.generate_private_key("ssh-ed25519")
        self.identity = place / "id"
        self.user_key.write_private_key(self.identity)
        self.config = place / "ssh_config"
        self.config.write_text(f"UserKnownHostsFile {place}/known_hosts_of_user\nIdentityAgent none\n")
        (place / "known_hosts_of_user").touch()
        self.port = 0
        self.jumps = 0
        self.connections: list[asyncssh.SSHServerConnection] = []
        self._server: asyncssh.SSHAcceptor | None = None
        self._running: set[asyncio.Task[object]] = set()

    async def start(self) -> None:
        """Listen, on the previous port after a restart."""
        self._server = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_host_keys=[self.host_key],
            server_factory=lambda: _Authentication(self),
            process_factory=self._run,
            encoding=None,
            config=None,
        )
        self.port = self._server.get_port()

    async def stop(self) -> None:
        """Stop listening, and cut every connection."""
        if self._server is not None:
            self._server.close()
        self.cut()

    async def wait_until_commands_end(self) -> None:
        """Wait until every command has ended. A command ends when its connection is cut."""
        if self._running:
            _, pending = await asyncio.wait(self._running, timeout=PATIENCE_S)
            assert not pending, "a command did not end after its connection was cut"

    def cut(self) -> None:
        """Break every connection."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run the command in a shell, as sshd does, and close its pipes when the connection is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        child = await asyncio.create_subprocess_shell(
            process.command or "",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.home,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home)},
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        feeding = asyncio.create_task(_feed(process, child.stdin, child.pid))
        await asyncio.gather(
            _copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr), return_exceptions=True
        )
        code = await child.wait()
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        with suppress(OSError):
            process.exit(code if code >= 0 else 128 - code)


class _Authentication(asyncssh.SSHServer):
    def __init__(self, server: SshServer) -> None:
        self._server = server

    def connection_made(self, connection: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(connection)

    def public_key_auth_supported(self) -> bool:
        return True

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Accept every jump to another host."""
        self._server.jumps += 1
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._server.user_key.convert_to_public()


async def _feed(process: asyncssh.SSHServerProcess[bytes], sink: asyncio.StreamWriter, pid: int) -> None:
    """Give the client's bytes and signals to the command; its stdin is closed when the channel ends."""
    try:
        while data := await process.stdin.read(_READ):
            sink.write(data)
            await sink.drain()
    except asyncssh.SignalReceived as received:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.Signals[f"SIG{received.signal}"])
    except (asyncssh.Error, OSError):
        pass  # the connection is lost, or the command reads no more
    finally:
        sink.close()


async def _copy(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
    broken = False
    while data := await source.read(_READ):
        if broken:
            continue
        try:
            sink.write(data)
            await sink.drain()
        except (OSError, asyncssh.Error):
            broken = True  # read on: a full pipe would keep the child from ending


@contextmanager
def running_ssh_server(place: Path) -> Iterator[SshServer]:
    """A server for tests without an event loop: it runs in the loop of a thread."""
    server = SshServer(place)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sshd")
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_stop_and_wait(server), loop).result(2 * PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _stop_and_wait(server: SshServer) -> None:
    await server.stop()
    await server.wait_until_commands_end()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
