"""Sends and receives frames to and from the controller, over two descriptors that never block."""

from __future__ import annotations

import os
import sys
from typing import Iterator

from wire.agent.frames import MAX_FRAME, AgentFrame, Frame, pack, unpack
from wire.codec import Malformed
from wire.text import printable

_READ = 1 << 18
BUSY_BYTES = 256 * 1024
"""While more bytes than this are unsent, GPU readings are dropped and log chunks are delayed."""


class AgentExit(Exception):
    """Ends the agent process. It is raised when the connection to the controller is closed, when the
    controller sent Leave, or when a new agent has to send a hello with changed facts.

    Jobs continue to run. The controller starts another agent.
    """


class Channel:
    """Reads and writes frames. One system call may transfer many frames."""

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
        """The number of bytes that have not been written yet."""
        return self._unsent_bytes

    @property
    def congested(self) -> bool:
        """Whether too many bytes are unsent, because the controller reads more slowly than the agent
        writes.
        """
        return self._unsent_bytes > BUSY_BYTES

    def send(self, frame: AgentFrame) -> None:
        """Queue a frame for the next flush."""
        data = pack(frame)
        self._outgoing.append(data)
        self._unsent_bytes += len(data)

    def flush(self) -> None:
        """Write queued frames as far as possible. Raises AgentExit if the controller has closed the
        connection.
        """
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
        """The frames that have arrived. Malformed frames are skipped. Raises AgentExit if the controller has
        closed the connection.
        """
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
