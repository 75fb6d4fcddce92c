"""The sockets on which the API listens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
from collections import Counter
from pathlib import Path

from controller.api.server.identity import peer_uid
from controller.api.server.protocol import Connections
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

BACKLOG = 1_024
AT_ONCE = 4
"""The most connections that are accepted in one iteration of the event loop."""
PAUSE_S = 1.0
HANDSHAKE_S = 10.0
"""Seconds within which a TLS handshake must be complete."""
MOST_HANDSHAKES, MOST_OF_ADDRESS = 256, 64
"""The most TLS handshakes that may be open, in total and of one address. If the total is reached, a new
connection replaces the oldest connection with an open handshake.
"""
LONGEST = 107
"""The most bytes that the kernel allows in the path of a unix socket."""

log = logging.getLogger("corral.api")


class UnixSocket:
    """A listening unix socket. The kernel reports the uid of each client.

    The socket file has mode 0666, because the rights of a client depend on its user and not on the file. The
    directory limits access: all users can reach a socket in /run/corral (0755), but only the user itself can
    reach a socket in its own runtime or state directory (0700). With `private`, the file has mode 0600, so
    only root and the controller's user can connect. The kernel keeps a separate queue of new connections for
    each socket. Therefore many connections of other users do not delay connections to the private socket.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path = path
        if len(os.fsencode(path)) > LONGEST:
            raise OSError(f"{path}: too long for a socket ({LONGEST} bytes); set [controller] socket")
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o755)
        try:
            os.close(trusted_paths.open_parent(str(path.parent)))
        except UntrustedPath as error:
            raise OSError(f"the socket {path} is not safe: {error}") from None
        _remove_stale(path)
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Set the umask before bind, because with chmod after bind the socket would have another mode for a
        # short time.
        before = os.umask(0o177 if private else 0o111)
        try:
            self.line.bind(os.fspath(path))
        except OSError as error:
            self.line.close()
            raise _cannot_listen(error, os.fspath(path)) from None
        finally:
            os.umask(before)
        self._made = _identity(path)
        self.line.listen(BACKLOG)

    def remove(self) -> None:
        """Remove the socket file, unless another process has replaced it."""
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._made:
                self.path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    there = path.lstat()
    return there.st_dev, there.st_ino


def _cannot_listen(error: OSError, where: str) -> OSError:
    return OSError(error.errno, f"cannot listen there: {error.strerror}", where)


def _remove_stale(path: Path) -> None:
    """Remove the socket file at `path` if an earlier, killed controller left the file there. Raise OSError if
    a running controller listens on the socket.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "exists and is not a socket; move it away", os.fspath(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except (TimeoutError, BlockingIOError):
            # Raise the error below: the socket's queue of new connections is full, so a running controller
            # listens on the socket.
            pass
    raise OSError(errno.EADDRINUSE, "another controller listens on this socket", os.fspath(path))


def open_tcp(address: str) -> socket.socket:
    """Open a listening TCP socket at `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _cannot_listen(error, address) from None


class Handshakes:
    """Counts the TLS handshakes of each address that are not complete.

    A connection counts in ConnectionLimit only after its handshake. Without a separate limit for handshakes,
    clients that connect and send nothing would take all file descriptors.
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def enter(self, line: socket.socket) -> bool:
        """Count a new connection. Return False if its address has too many open handshakes."""
        address = self.address_of(line)
        if self._open[address] >= MOST_OF_ADDRESS:
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    @staticmethod
    def address_of(line: socket.socket) -> str:
        """Return the IP address of the client; empty if the client has closed the connection."""
        try:
            return str(line.getpeername()[0])
        except OSError:
            return ""


class Acceptor:
    """Accepts the connections of a listening socket, at most AT_ONCE in each iteration of the event loop.

    asyncio's own servers accept up to 100 connections per iteration, and build all objects for each
    connection. When very many clients connect, this delays all requests.

    1. In each iteration in which new connections wait at the socket, accept up to AT_ONCE of them.
    2. Close a connection at once if too many refused connections are open already
       (`ConnectionLimit.closes_at_once`). Closing a connection takes a twentieth of the time that is needed
       to build the objects of a connection.
    3. With TLS, limit the open handshakes (`Handshakes`), in total and of one address.
    4. If no file descriptor is free, pause for PAUSE_S seconds, because the event loop would otherwise retry
       without end and use all CPU time.
    """

    def __init__(
        self, line: socket.socket, connections: Connections, tls: ssl.SSLContext | None = None
    ) -> None:
        self._line = line
        self._tls = tls
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[object], None] = {}
        """The tasks that set up accepted connections, the oldest first. With TLS, a task ends with the
        handshake.
        """
        self._handshakes = Handshakes()
        self._pause: asyncio.TimerHandle | None = None
        line.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting, and close the socket. A second call does nothing."""
        if self._line.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._line)
        self._line.close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._line, self._accept_some)

    def _accept_some(self) -> None:
        for _ in range(AT_ONCE):
            try:
                line, _ = self._line.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection is accepted for %g s: %s", PAUSE_S, error.strerror)
                self._loop.remove_reader(self._line)
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            if self._connections.closes_at_once(peer_uid(line)):
                line.close()
                continue
            line.setblocking(False)
            if self._tls is not None and not self._handshakes.enter(line):
                line.close()
                continue
            task = self._loop.create_task(self._connect(line))
            self._tasks[task] = None
            if self._tls is not None and len(self._tasks) > MOST_HANDSHAKES:
                # Remove the oldest task from the dict now, because cancel() takes effect only in a later
                # iteration, and each connection of this iteration must replace another one.
                oldest = next(iter(self._tasks))
                del self._tasks[oldest]
                oldest.cancel()
            task.add_done_callback(self._finished)

    async def _connect(self, line: socket.socket) -> None:
        if self._tls is None:
            await self._loop.connect_accepted_socket(self._connections, line)
            return
        address = self._handshakes.address_of(line)
        try:
            await self._loop.connect_accepted_socket(
                self._connections, line, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except BaseException:
            line.close()
            raise
        finally:
            self._handshakes.leave(address)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None and self._tls is None:
            log.warning("a connection was not accepted: %s", task.exception())
