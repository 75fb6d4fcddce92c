"""The other end of a connection, scripted by a test."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wire.codec import encode


@dataclass
class Request:
    """One received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Line:
    """One accepted connection: read requests from it, write bytes to it."""

    wire: socket.socket
    requests: list[Request]
    buffer: bytes = field(default=b"", repr=False)

    def read(self) -> Request:
        """The next request; raises EOFError once the client is gone."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        method, target, _ = first.split(" ")
        request = Request(method, target, headers, body)
        self.requests.append(request)
        return request

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.wire.sendall(data)

    def answer(self, body: Any, status: int = 200) -> None:
        """A complete answer with a JSON body."""
        self.send(response(body, status))

    def chunk(self, data: bytes) -> None:
        """One piece of a chunked answer."""
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def _more(self) -> None:
        piece = self.wire.recv(65_536)
        if not piece:
            raise EOFError
        self.buffer += piece


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def response(body: Any, status: int = 200) -> bytes:
    """A complete HTTP answer; wire dataclasses are encoded, bytes are sent as they are."""
    if not isinstance(body, bytes):
        body = json.dumps(body if isinstance(body, (dict, list)) else encode(body)).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Peer:
    """Plays one script per connection, in order; the last one again for all that follow."""

    def __init__(self, *scripts: Callable[[Line], None], path: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._scripts = scripts
        if path is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self.url = f"unix://{path}"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._listener.listen(16)
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Accept no more, and wait for the scripts to end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in [self._accepting, *self._threads]:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._play, args=(script, wire), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, script: Callable[[Line], None], wire: socket.socket) -> None:
        with wire, contextlib.suppress(EOFError, OSError):  # the client has gone
            script(Line(wire, self.requests))
