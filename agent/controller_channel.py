"""Frames to and from the controller, over a pair of descriptors that never block."""

from __future__ import annotations

import os
import sys
from typing import Iterator

from wire.agent.frames import MAX_FRAME, AgentFrame, Frame, pack, unpack
from wire.codec import Malformed
from wire.text import printable

_READ = 1 << 18
BUSY_BYTES = 256 * 1024
"""With more than this unsent, GPU readings and log chunks are held back."""


class AgentExit(Exception):
    """Ends the agent process: the controller is gone or sent Leave, or another agent has to say hello.

    Jobs go on. The controller's link starts another agent.
    """


class Channel:
    """Reads and writes frames; many frames per system call."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        self._incoming = bytearray()
        self._outgoing: list[bytes] = []
        self._unsent_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait to be written."""
        return self._unsent_bytes

    @property
    def congested(self) -> bool:
        """Whether the controller reads more slowly than the agent writes."""
        return self._unsent_bytes > BUSY_BYTES

    def send(self, frame: AgentFrame) -> None:
        """Queue a frame for the next flush."""
        data = pack(frame)
        self._outgoing.append(data)
        self._unsent_bytes += len(data)

    def flush(self) -> None:
        """Write queued frames as far as possible; raises AgentExit if the other end is closed."""
        while self._outgoing:
            data = b"".join(self._outgoing) if len(self._outgoing) > 1 else self._outgoing[0]
            try:
                written = os.write(self.sink, data)
            except BlockingIOError:
                self._outgoing = [data]
                return
            except OSError:
                raise AgentExit from None
            self._unsent_bytes -= written
            self._outgoing = [data[written:]] if written < len(data) else []

    def receive(self) -> Iterator[Frame]:
        """The frames that arrived, without malformed ones. Raises AgentExit if the other end is closed."""
        try:
            data = os.read(self.source, _READ)
        except BlockingIOError:
            return
        except OSError:
            raise AgentExit from None
        if not data:
            raise AgentExit
        self._incoming += data
        if b"\n" not in data:
            if len(self._incoming) > MAX_FRAME:
                print(f"agent: a frame is longer than {MAX_FRAME} bytes", file=sys.stderr)
                raise AgentExit
            return
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = rest
        for line in lines:
            try:
                yield unpack(bytes(line))
            except Malformed as error:
                print(f"agent: ignored a malformed frame: {printable(str(error))}", file=sys.stderr)
