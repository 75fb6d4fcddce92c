"""The messages between controller and replica: a length, then a pickle. Both ends are the same program."""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.core.model.events import Event, JobEvent
from controller.core.model.inputs import Input, Refusal

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Committed:
    """Inputs that the controller has committed, each with the time at which it was handled."""

    handled: tuple[tuple[Input, float], ...]
    seq: int
    """The number of the last journal entry."""
    digest: int
    """The checksum of the events. A replica that computes another one has drifted."""


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """Start a process that answers this question."""

    number: int
    work: Callable[..., Iterator[Any]]
    arguments: tuple[Any, ...]
    now: float
    budget_s: float


@dataclass(frozen=True, slots=True)
class QuestionDropped:
    """Stop answering a question."""

    number: int


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """An answer to a question. A later one replaces it."""

    number: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Declined:
    """The question cannot be answered, and why."""

    number: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Ended:
    """The process that answered a question has ended; `failure` if it was killed or met a bug."""

    number: int
    failure: str = ""


def pack(message: object) -> bytes:
    """The bytes of a message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


class Unpacker:
    """Splits a stream into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The messages that this piece completes."""
        self._rest += piece
        while len(self._rest) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            message = bytes(self._rest[:end])
            del self._rest[:end]
            yield message


def unpack(message: bytes) -> Any:
    """The message that pack() has packed."""
    return pickle.loads(message[LENGTH.size :])  # noqa: S301 - from another process of this program


def digest_of(events: Iterable[Event]) -> int:
    """A checksum over kind, job, node and time of the events."""
    digest = 0
    for event in events:
        name = event.job if isinstance(event, JobEvent) else getattr(event, "node", "")
        digest = zlib.crc32(f"{type(event).__name__} {name} {event.at}".encode(), digest)
    return digest
