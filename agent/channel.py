"""Frames over a pair of descriptors that never block: many per read, many per write."""

from __future__ import annotations

import os
import sys
from typing import Iterator

from wire.codec import Malformed
from wire.frames import MAX_FRAME, AgentFrame, Frame, pack, unpack
from wire.text import plain

_READ = 1 << 18
BUSY = 256 * 1024
"""More than this waiting to be written: nothing that can wait is added."""


class Gone(Exception):
    """The controller closed its end, or told us to go."""


class Channel:
    """The controller's end of the line."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        self._incoming = bytearray()
        self._outgoing: list[bytes] = []
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Bytes not yet written."""
        return self._waiting

    @property
    def busy(self) -> bool:
        """Is the controller slower than we are?"""
        return self._waiting > BUSY

    def send(self, frame: AgentFrame) -> None:
        """Queue a frame for the next flush."""
        data = pack(frame)
        self._outgoing.append(data)
        self._waiting += len(data)

    def flush(self) -> None:
        """Write what can be written now."""
        while self._outgoing:
            data = b"".join(self._outgoing) if len(self._outgoing) > 1 else self._outgoing[0]
            try:
                written = os.write(self.sink, data)
            except BlockingIOError:
                self._outgoing = [data]
                return
            except OSError:
                raise Gone from None
            self._waiting -= written
            self._outgoing = [data[written:]] if written < len(data) else []

    def receive(self) -> Iterator[Frame]:
        """The frames that arrived; what is no frame is named on stderr and passed over."""
        try:
            data = os.read(self.source, _READ)
        except BlockingIOError:
            return
        except OSError:
            raise Gone from None
        if not data:
            raise Gone
        self._incoming += data
        if b"\n" not in data:
            if len(self._incoming) > MAX_FRAME:
                print(f"agent: a frame is longer than {MAX_FRAME} bytes", file=sys.stderr)
                raise Gone
            return
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = rest
        for line in lines:
            try:
                yield unpack(bytes(line))
            except Malformed as error:
                print(f"agent: passed over a frame: {plain(str(error))}", file=sys.stderr)
