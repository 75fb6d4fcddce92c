"""The listening sockets of the API."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

BACKLOG = 1_024
LONGEST = 107
"""Bytes the kernel allows for the path of a unix socket."""


class UnixSocket:
    """A unix socket that every local user may connect to. The kernel says which user did.

    Who may do what is decided by user, so the file is open to all (0666) and its directory is the fence:
    /run/corral is made 0755; a user's own runtime or state directory is 0700, and his controller private.
    """

    def __init__(self, path: Path) -> None:
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
        # By umask and not by chmod afterwards: there is no moment with another mode.
        before = os.umask(0o111)
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
        """Remove the file if it is still ours."""
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._made:
                self.path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    there = path.lstat()
    return there.st_dev, there.st_ino


def _cannot_listen(error: OSError, where: str) -> OSError:
    return OSError(error.errno, f"cannot listen there: {error.strerror}", where)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a killed controller. A controller that answers keeps its socket."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "is there and not a socket; move it away", os.fspath(path))
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
            pass  # somebody has it open, and is only too busy to answer
    raise OSError(errno.EADDRINUSE, "another controller listens there", os.fspath(path))


def open_tcp(address: str) -> socket.socket:
    """A listening socket at `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _cannot_listen(error, address) from None
