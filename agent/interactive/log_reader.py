"""Sends the logs of jobs to the controller. If a client follows a log, new output is sent at once."""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from typing import Callable

from agent.attempts.log_rotation import STREAMS, skip_hole
from agent.attempts.spool import AttemptKey, Spool, format_key
from agent.controller_channel import Channel
from agent.supervisor.after_exit import OUTPUT_TAIL, TAIL_BYTES
from wire.agent.orders import ReadLog
from wire.agent.reports import AttemptStatus, LogChunk
from wire.dataclass import dataclass

CHUNK_BYTES = 64 * 1024
POLL_S = 0.1


@dataclass
class _LogRequest:
    request: ReadLog
    key: AttemptKey
    offset: int
    descriptor: int | None = None
    caught_up: bool = False


class LogReader:
    """The requests of clients to read logs, until all of the log is sent.

    1. In each iteration of the event loop, send the next CHUNK_BYTES of the log for each request in turn.
       Repeat this until every request waits for new output, or until the controller reads too slowly.
    2. A request that has reached the present end of a growing log waits. `retry` continues all waiting
       requests.
    3. A request ends at the end of the log, if the attempt has ended or the request does not follow the log.
    """

    def __init__(
        self, spool: Spool, has_ended: Callable[[AttemptKey], bool | None], channel: Channel
    ) -> None:
        self._spool = spool
        self._has_ended = has_ended
        self._channel = channel
        self._readings: dict[int, _LogRequest] = {}

    @property
    def ready(self) -> bool:
        """Return whether a part of a log can be sent now. If so, the event loop must not sleep."""
        return any(not reading.caught_up for reading in self._readings.values())

    @property
    def following(self) -> bool:
        """Return whether a request is at the end of its log and waits for new output."""
        return any(reading.caught_up for reading in self._readings.values())

    def read(self, request: ReadLog) -> None:
        key = (request.job, request.attempt)
        self.stop(request.request)
        if request.stream not in STREAMS:
            self._refuse(request, f"there is no stream {request.stream!r}; choose stdout or stderr")
        elif self._has_ended(key) is None:
            self._refuse(request, f"this node has no log of attempt {request.attempt} of job {request.job}")
        else:
            self._readings[request.request] = _LogRequest(request, key, request.offset)

    def stop(self, request: int) -> None:
        """Send no more of the log for the request with this number."""
        reading = self._readings.pop(request, None)
        if reading is not None and reading.descriptor is not None:
            os.close(reading.descriptor)

    def retry(self) -> None:
        """Read the logs again for the requests that wait for new output."""
        for reading in self._readings.values():
            reading.caught_up = False

    def send_chunks(self) -> None:
        """Send the next CHUNK_BYTES of the log for each request in turn. Stop when every request waits for
        new output, or when the controller reads too slowly.
        """
        while not self._channel.congested:
            ready = [reading for reading in self._readings.values() if not reading.caught_up]
            if not ready:
                return
            for reading in ready:
                self._step(reading)

    def _step(self, reading: _LogRequest) -> None:
        # Check whether the attempt has ended before reading the log. If the log were read first, output that
        # the job writes between the read and the check would not be sent.
        ended = self._has_ended(reading.key) is not False
        try:
            data = self._next(reading)
        except OSError as error:
            name = f"{format_key(reading.key)}/{reading.request.stream}"
            self._refuse(reading.request, f"cannot read {name}: {error.strerror}")
            return
        number = reading.request.request
        if data:
            self._channel.send(LogChunk(number, b64encode(data).decode(), offset=reading.offset - len(data)))
        elif ended or not reading.request.follow:
            self._channel.send(LogChunk(number, end=True))
            self.stop(number)
        else:
            reading.caught_up = True

    def _next(self, reading: _LogRequest) -> bytes:
        if reading.descriptor is None:
            try:
                reading.descriptor = self._spool.open_log(reading.key, reading.request.stream)
            except FileNotFoundError:
                # Return no bytes, because the attempt has no log: it has not started yet, or will never
                # start.
                return b""
            if reading.offset < 0:
                size = os.fstat(reading.descriptor).st_size
                reading.offset = max(0, size + reading.offset)
        reading.offset, notice = skip_hole(reading.descriptor, reading.offset)
        if notice:
            return notice  # Send a notice in place of the deleted bytes.
        data = os.pread(reading.descriptor, CHUNK_BYTES, reading.offset)
        reading.offset += len(data)
        return data

    def _refuse(self, request: ReadLog, error: str) -> None:
        self._channel.send(LogChunk(request.request, end=True, error=error))
        self.stop(request.request)


def with_tail(spool: Spool, status: AttemptStatus) -> AttemptStatus:
    """Return the status of a failed attempt with the last lines of its logs, in which the controller looks
    for the cause. Any other status is returned unchanged.
    """
    if status.ended_at is None or status.pid is None or not (status.code or status.signal or status.why):
        return status
    parts = []
    for name in ("stdout", "stderr", OUTPUT_TAIL):
        with suppress(OSError):
            descriptor = spool.open_log((status.job, status.attempt), name)
            try:
                size = os.fstat(descriptor).st_size
                parts.append(os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES)))
            finally:
                os.close(descriptor)
    return replace(status, tail=b"\n".join(parts).decode("utf-8", "replace"))
