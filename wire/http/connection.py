"""An HTTP/1.1 connection of a client, over a unix socket, TCP or TLS.

`http.client` of the standard library does the same, but takes 10 ms to import, because it imports the
packages email and ssl. Some scripts run Slurm's commands many times a second.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING, Mapping, Optional, Union

from wire.http import addresses

if TYPE_CHECKING:
    import ssl

READ_SIZE = 64 * 1024
_LONGEST_LINE = 64 * 1024
_MOST_HEADERS = 200


class InvalidAnswer(Exception):
    """Raised for an answer that is not HTTP, or that ends before it is complete."""


class Connection:
    """A connection that sends one request at a time. The address is either the path of a unix socket, or a
    pair of host and port. `sock` is None while the connection is closed.
    """

    def __init__(
        self,
        address: Union[str, tuple[str, int]],
        timeout_s: float,
        secure: Optional[ssl.SSLContext] = None,
    ) -> None:
        self.sock: Optional[socket.socket] = None
        self._address = address
        self._timeout_s = timeout_s
        self._secure = secure

    def connect(self) -> socket.socket:
        """Connect to the address, and return the socket. For the path of a unix socket, connect to its admin
        socket if this user may use it. Raise OSError if this fails, for example because no process listens at
        the address.
        """
        if isinstance(self._address, str):
            line = self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            line = self.sock = socket.create_connection(self._address, self._timeout_s)
        try:
            if isinstance(self._address, str):
                own = addresses.admin_socket(self._address)
                if not (os.access(own, os.W_OK) and _connects(line, own, self._timeout_s)):
                    _connect_unix(line, self._address, self._timeout_s)
                return line
            # Send each packet at once (no Nagle algorithm). Otherwise the kernel keeps a packet back until
            # the server has acknowledged the packet before.
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._secure is not None:
                line = self.sock = self._secure.wrap_socket(line, server_hostname=self._address[0])
        except BaseException:
            self.close()
            raise
        return line

    def request(self, method: str, target: str, body: Optional[bytes], headers: Mapping[str, str]) -> Answer:
        """Send a request. Return the answer, whose body has not been read yet. The values of `headers` must
        have no line breaks.
        """
        line = self.sock
        if line is None:
            raise InvalidAnswer("the connection is closed")
        if not target.isascii() or not target.isprintable() or " " in target:
            raise ValueError(f"not the path of a request: {target!r}")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host()}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None or method != "GET":
            lines.append(f"Content-Length: {len(body or b'')}")
        line.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + (body or b""))
        answer = Answer(line)
        if answer.is_last:
            # Forget the socket, so that the next request opens a new connection. `answer` keeps the socket to
            # read the body.
            self.sock = None
        return answer

    def close(self) -> None:
        line, self.sock = self.sock, None
        if line is not None:
            line.close()

    def _host(self) -> str:
        if isinstance(self._address, str):
            return "localhost"
        host, port = self._address
        host = f"[{host}]" if ":" in host else host
        return host if port == (443 if self._secure is not None else 80) else f"{host}:{port}"


class Answer:
    """The answer to one request: its status, and its body. The body is read during its arrival.

    1. Read the status line and the headers. An interim answer (status 1xx) is skipped.
    2. The body ends after Content-Length bytes, with the last chunk of a chunked body, or, without both, when
       the server closes the connection.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._buffer = b""
        self.status, headers = self._head()
        while 100 <= self.status < 200:
            self.status, headers = self._head()
        self.leader: Optional[str] = headers.get("corral-leader")
        """The URL of the leader if a standby has answered; empty if no controller leads. None if the leader
        has answered.
        """
        self.location = headers.get("location", "")
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._left: Optional[int] = None
        """The number of bytes of the body, or of the present chunk, that have not been read. None if the body
        ends when the server closes the connection.
        """
        if self._chunked or self.status in (204, 304):
            self._left = 0
        elif "content-length" in headers:
            self._left = _number(headers["content-length"].encode("latin-1"), 10)
        self._ended = not self._chunked and self._left == 0
        self._first_chunk = True
        self.is_last = "close" in headers.get("connection", "").lower() or self._left is None
        """Whether the server closes the connection after this answer."""

    def read(self) -> bytes:
        """Return the rest of the body. Close the connection if it cannot be used for another request."""
        parts = []
        while piece := self.read_some():
            parts.append(piece)
        if self.is_last:
            self._line.close()
        return b"".join(parts)

    def read_some(self) -> bytes:
        """Wait until a part of the body has arrived, and return this part; empty after the end of the body.
        Raise InvalidAnswer if the connection ends before the body is complete.
        """
        if self._chunked and not self._ended and self._left == 0:
            self._begin_chunk()
        if self._ended:
            return b""
        piece, self._buffer = self._buffer, b""
        piece = piece or self._line.recv(READ_SIZE)
        if self._left is None:
            self._ended = not piece
            return piece
        if not piece:
            raise InvalidAnswer("the answer is not complete")
        piece, self._buffer = piece[: self._left], piece[self._left :]
        self._left -= len(piece)
        self._ended = not self._chunked and self._left == 0
        return piece

    def _begin_chunk(self) -> None:
        if not self._first_chunk and self._next_line():
            raise InvalidAnswer("a chunk has more bytes than announced")
        self._first_chunk = False
        self._left = _number(self._next_line().partition(b";")[0].strip(), 16)
        if self._left == 0:
            while self._next_line():
                pass  # Skip the headers that follow the last chunk.
            self._ended = True

    def _head(self) -> tuple[int, dict[str, str]]:
        words = self._next_line().split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or len(words[1]) != 3:
            raise InvalidAnswer("the answer is not HTTP/1.1")
        headers: dict[str, str] = {} if words[0] != b"HTTP/1.0" else {"connection": "close"}
        for _ in range(_MOST_HEADERS):
            name, _, value = self._next_line().decode("latin-1").partition(":")
            if not name:
                return _number(words[1], 10), headers
            headers[name.strip().lower()] = value.strip()
        raise InvalidAnswer("the answer has too many headers")

    def _next_line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LONGEST_LINE:
                raise InvalidAnswer("the answer has a line that is too long")
            piece = self._line.recv(READ_SIZE)
            if not piece:
                raise InvalidAnswer("the connection was closed")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")


def _number(text: bytes, base: int) -> int:
    if not text.isalnum():
        raise InvalidAnswer("the answer has a number that cannot be read")
    try:
        return int(text, base)
    except ValueError:
        raise InvalidAnswer("the answer has a number that cannot be read") from None


def _connects(line: socket.socket, path: str, timeout_s: float) -> bool:
    """Connect the socket `line` to the unix socket at `path`. Return True if a process listens at this
    path.
    """
    with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
        _connect_unix(line, path, timeout_s)
        return True
    return False


def _connect_unix(line: socket.socket, path: str, timeout_s: float) -> None:
    """Connect the socket `line` to the unix socket at `path`. If the backlog (the queue of connections that
    the server has not accepted) is full, wait for free space in the backlog, within the timeout.

    Python makes a socket with a timeout non-blocking, and its connect() fails at once with EAGAIN if the
    backlog is full. So a blocking socket is used: the kernel waits until the backlog has space, for at most
    SO_SNDTIMEO.
    """
    whole = int(timeout_s)  # Callers avoid 0, because SO_SNDTIMEO 0 means no limit.
    line.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, int((timeout_s - whole) * 1e6))
    )
    try:
        line.connect(path)
    except BlockingIOError:
        raise TimeoutError("timed out") from None
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
    line.settimeout(timeout_s)
