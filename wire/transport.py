"""Bytes to the controller and back, over a unix socket or TCP; whatever fails is Unreachable or Refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import time
import urllib.parse
from typing import Iterator, Optional, Sequence, TypeVar, Union

from wire import VERSION
from wire.api.problem import Problem
from wire.codec import decode

T = TypeVar("T")

READ_SIZE = 64 * 1024
_TIMEOUTS = (socket.timeout, TimeoutError)


class Unreachable(Exception):
    """Nobody answered at `url`, or not in our language."""

    def __init__(self, url: str, why: str, hint: str = "") -> None:
        super().__init__(f"no controller at {url}: {why}")
        self.url = url
        self.why = why
        self.hint = hint


class Refused(Exception):
    """The controller answered, and said no."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.message)
        self.status = status
        self.problem = problem


class Transport:
    """One kept connection for questions, and one more for each answer without end."""

    def __init__(self, url: str, timeout_s: float, token: str) -> None:
        self._url = url
        self._address = _address(url)
        self._timeout_s = timeout_s
        self._headers = {"User-Agent": f"corral/{VERSION}", "Accept": "application/json"}
        if token and not (token.isascii() and token.isprintable()):
            raise Unreachable(
                url, "the token is not a line of printable ASCII", "Copy it from the controller's token file."
            )
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._kept: Optional[http.client.HTTPConnection] = None
        self._asking = False
        self._endless: set[socket.socket] = set()

    def ask(self, method: str, target: str, body: Optional[bytes], pauses: Sequence[float]) -> bytes:
        """Send until answered; a lost connection is tried again after each of `pauses`."""
        self._asking = True
        try:
            return self._ask(method, target, body, list(pauses))
        finally:
            self._asking = False

    def _ask(self, method: str, target: str, body: Optional[bytes], pauses: list[float]) -> bytes:
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        sent = connected = False
        while True:
            try:
                connected = False
                connection = self._connection()
                connected = sent = True
                connection.request(method, target, body, headers)
                response = connection.getresponse()
                return self._body(response.status, response.read())
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                # Who was not there the first time, or is too slow, is not asked again.
                if not pauses or not sent or isinstance(error, _TIMEOUTS):
                    raise self._unreachable(error, connected, unsure=sent and method != "GET") from None
                time.sleep(pauses.pop(0))

    def listen(self, target: str, silence_s: Optional[float]) -> Iterator[bytes]:
        """The answer's body as it comes; longer silence than `silence_s` is a lost connection."""
        line: Optional[socket.socket] = None
        try:
            connection = self._connect()
            line = connection.sock
            self._endless.add(line)
            line.settimeout(silence_s)
            connection.request("GET", target, headers=self._headers)
            response = connection.getresponse()
            if response.status != 200:
                self._body(response.status, response.read())
            while piece := response.read1(READ_SIZE):
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error, line is not None, unsure=False) from None
        finally:
            if line is not None:
                self._endless.discard(line)
                _shut(line)
                connection.close()

    def close(self) -> None:
        """Let go of everything; another thread that waits in here is woken, and closes what it holds."""
        for line in list(self._endless):
            _shut(line)
        kept = self._kept
        if self._asking and kept is not None and kept.sock is not None:
            _shut(kept.sock)
        else:
            self._drop()

    def understand(self, kind: type[T], answer: bytes) -> T:
        """The answer as what it has to be."""
        try:
            return decode(kind, json.loads(answer))
        except (ValueError, RecursionError) as error:
            raise Unreachable(
                self._url,
                f"the answer is not a {kind.__name__} of Corral ({str(error)[:200]})",
                f"Check that a Corral controller of this client's version ({VERSION}) listens there.",
            ) from None

    def _body(self, status: int, answer: bytes) -> bytes:
        if 200 <= status < 300:
            return answer
        problem = self.understand(Problem, answer)
        if problem.code == "stopping":  # as good as gone: whoever waits for its return waits now
            raise Unreachable(self._url, problem.message, problem.hint)
        raise Refused(status, problem)

    def _connection(self) -> http.client.HTTPConnection:
        # A server closes what idles: noticed before sending, that repeats nothing.
        if self._kept is not None and (self._kept.sock is None or _readable(self._kept.sock)):
            self._drop()
        if self._kept is None:
            self._kept = self._connect()
        return self._kept

    def _connect(self) -> http.client.HTTPConnection:
        connection = _Connection(self._address, self._timeout_s)
        connection.connect()
        return connection

    def _drop(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _unreachable(self, error: Exception, connected: bool, *, unsure: bool) -> Unreachable:
        if not connected:
            why, hint = _absence(error)
        elif isinstance(error, _TIMEOUTS):
            why, hint = (
                f"no answer within {self._timeout_s:g} s",
                "Try again, or look at the controller's log.",
            )
        else:
            why, hint = "the connection was lost before the answer was complete", "Try again in a moment."
        if unsure:
            hint = "The request may have been carried out: look before you repeat it."
        return Unreachable(self._url, why, hint)


class _Connection(http.client.HTTPConnection):
    """http.client over whatever the address names."""

    def __init__(self, address: Union[str, tuple[str, int]], timeout_s: float) -> None:
        self._path = address if isinstance(address, str) else ""
        host, port = ("localhost", 80) if isinstance(address, str) else address
        super().__init__(host, port, timeout=timeout_s)

    def connect(self) -> None:
        if not self._path:
            super().connect()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise


def _address(url: str) -> Union[str, tuple[str, int]]:
    """The socket's path, or host and port."""
    if url.startswith("unix:///") and len(url) > len("unix:///"):
        return url[len("unix://") :]
    hint = "Write unix:///path/to/corral.sock or http://host:port."
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Unreachable(url, f"not an address ({error})", hint) from None
    if parts.scheme == "http" and parts.hostname and parts.path in ("", "/") and parts.username is None:
        return parts.hostname, port or 80
    raise Unreachable(url, "not an address", hint)


def _absence(error: Exception) -> tuple[str, str]:
    """Why nobody is there, and what to do."""
    start = "Start one with 'corral controller', or set CORRAL_URL to the address of one."
    if isinstance(error, FileNotFoundError):
        return "there is no such socket", start
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there", start
    if isinstance(error, PermissionError):
        return "you may not open this socket", "Ask for access, or set CORRAL_URL to another controller."
    if isinstance(error, _TIMEOUTS):
        return "no connection within the time limit", "Check the address, and that the host is up."
    return str(error) or type(error).__name__, "Check the address in CORRAL_URL."


def _readable(line: socket.socket) -> bool:
    # Before we have asked anything: the other end has closed, or talks nonsense.
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))


def _shut(line: socket.socket) -> None:
    # close() alone does not wake a thread that reads.
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
