"""Sends messages to the controller and receives messages from the controller, over two descriptors that never
block.
"""

from __future__ import annotations

import os
import sys
from typing import Iterator

from wire.agent.frames import MAX_FRAME, AgentFrame, Frame, pack, unpack
from wire.codec import Malformed
from wire.text import printable

_READ = 1 << 18
BUSY_BYTES = 256 * 1024
"""While more than this many bytes wait to be written, GPU readings are dropped and logs are sent later."""


class AgentExit(Exception):
    """Raised to end the agent process, for example because the connection to the controller is closed, the
    controller sent Leave, or the resources of this host have changed.

    Jobs continue to run. The controller starts another agent, which reports the new resources when it
    connects.
    """


class Channel:
    """The connection to the controller. Messages are queued, so that one system call may transfer many of
    them.
    """

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
        return self._unsent_bytes

    @property
    def congested(self) -> bool:
        """Return whether more than BUSY_BYTES bytes wait to be written, because the controller reads too
        slowly.
        """
        return self._unsent_bytes > BUSY_BYTES

    def send(self, frame: AgentFrame) -> None:
        """Queue a message, which the next `flush` writes."""
        data = pack(frame)
        self._outgoing.append(data)
        self._unsent_bytes += len(data)

    def flush(self) -> None:
        """Write as much of the queued messages as the pipe accepts. Raise AgentExit if the controller has
        closed the connection.
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
        """Yield the messages that have arrived. Malformed messages are skipped. Raise AgentExit if the
        controller has closed the connection.
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
