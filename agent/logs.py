"""Reading logs for people: from any place, following what grows, never faster than they take it."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import dataclass
from typing import Callable

from agent.channel import Channel
from agent.output import skip_hole
from agent.spool import Key, Spool, name_of
from wire.frames import LogChunk, ReadLog

CHUNK = 64 * 1024
STREAMS = ("stdout", "stderr")
POLL_S = 0.1


@dataclass
class _Reading:
    request: ReadLog
    key: Key
    offset: int
    descriptor: int | None = None
    caught_up: bool = False


class Logs:
    """All readings under way; one timer serves those that wait for more."""

    def __init__(self, spool: Spool, over: Callable[[Key], bool | None], channel: Channel) -> None:
        self._spool = spool
        self._over = over
        self._channel = channel
        self._readings: dict[int, _Reading] = {}

    @property
    def ready(self) -> bool:
        """Is there more that could be sent at once?"""
        return any(not reading.caught_up for reading in self._readings.values())

    @property
    def following(self) -> bool:
        """Does anybody wait for a log to grow?"""
        return any(reading.caught_up for reading in self._readings.values())

    def read(self, request: ReadLog) -> None:
        """Begin an answer."""
        key = (request.job, request.attempt)
        self.stop(request.request)
        if request.stream not in STREAMS:
            self._refuse(request, f"there is no stream {request.stream!r}; choose stdout or stderr")
        elif self._over(key) is None:
            self._refuse(request, f"this node has no log of attempt {request.attempt} of job {request.job}")
        else:
            self._readings[request.request] = _Reading(request, key, request.offset)

    def stop(self, request: int) -> None:
        """Nobody reads this answer any more."""
        reading = self._readings.pop(request, None)
        if reading is not None and reading.descriptor is not None:
            os.close(reading.descriptor)

    def poll(self) -> None:
        """Look again at everything that had no more to give."""
        for reading in self._readings.values():
            reading.caught_up = False

    def pump(self) -> None:
        """Send chunks in turn while the controller keeps up."""
        while not self._channel.busy:
            ready = [reading for reading in self._readings.values() if not reading.caught_up]
            if not ready:
                return
            for reading in ready:
                self._step(reading)

    def _step(self, reading: _Reading) -> None:
        over = self._over(reading.key) is not False  # asked first: what is written before the end is read
        try:
            data = self._next(reading)
        except OSError as error:
            name = f"{name_of(reading.key)}/{reading.request.stream}"
            self._refuse(reading.request, f"cannot read {name}: {error.strerror}")
            return
        number = reading.request.request
        if data:
            self._channel.send(LogChunk(number, b64encode(data).decode(), offset=reading.offset - len(data)))
        elif over or not reading.request.follow:
            self._channel.send(LogChunk(number, end=True))
            self.stop(number)
        else:
            reading.caught_up = True

    def _next(self, reading: _Reading) -> bytes:
        if reading.descriptor is None:
            try:
                reading.descriptor = self._spool.log(reading.key, reading.request.stream)
            except FileNotFoundError:
                return b""  # not started yet, or never
            if reading.offset < 0:
                size = os.fstat(reading.descriptor).st_size
                reading.offset = max(0, size + reading.offset)
        reading.offset, told = skip_hole(reading.descriptor, reading.offset)
        if told:
            return told  # in the place of the last bytes that are gone
        data = os.pread(reading.descriptor, CHUNK, reading.offset)
        reading.offset += len(data)
        return data

    def _refuse(self, request: ReadLog, error: str) -> None:
        self._channel.send(LogChunk(request.request, end=True, error=error))
        self.stop(request.request)
