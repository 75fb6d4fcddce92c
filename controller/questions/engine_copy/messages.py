"""Messages between the controller and its engine copy, each a pickled object with its length in front.

Pickle is safe here, because both ends are processes of the same program.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.core.model.decision.decision import Refusal
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.inputs.input import Input

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Committed:
    """Message to the engine copy: the inputs of a commit of the controller, each with the time at which the
    engine handled the input.
    """

    handled: tuple[tuple[Input, float], ...]
    seq: int
    """The number of the newest journal entry."""
    digest: int
    """The checksum of the events that the inputs caused. If the engine copy computes a different checksum,
    its state is wrong.
    """


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """Message to the engine copy: start a process that answers the question by calling `work` with
    `arguments`.
    """

    number: int
    work: Callable[..., Iterator[Any]]
    arguments: tuple[Any, ...]
    now: float
    budget_s: float


@dataclass(frozen=True, slots=True)
class QuestionDropped:
    """Message to the engine copy: stop the process that answers the question with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """Message from the engine copy: an answer to a question. The answer replaces earlier answers to the same
    question.
    """

    number: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Declined:
    """Message from the engine copy: the question with this number cannot be answered. `refusal` has the
    reason.
    """

    number: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Ended:
    """Message from the engine copy: the process that answered a question has ended. `failure` is the reason
    if the process crashed or was killed.
    """

    number: int
    failure: str = ""


def pack(message: object) -> bytes:
    """Return the message as bytes, with its length in front."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


class Unpacker:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add received bytes, and yield the messages that are complete now."""
        self._rest += piece
        while len(self._rest) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            message = bytes(self._rest[:end])
            del self._rest[:end]
            yield message


def unpack(message: bytes) -> Any:
    """Return the message that pack() has converted to bytes."""
    return pickle.loads(message[LENGTH.size :])  # noqa: S301 - from another process of this program


def digest_of(events: Iterable[Event]) -> int:
    """Return a checksum of the kinds, jobs, nodes and times of these events. If the controller and the engine
    copy compute different checksums, their states differ.
    """
    digest = 0
    for event in events:
        name = event.job if isinstance(event, JobEvent) else getattr(event, "node", "")
        digest = zlib.crc32(f"{type(event).__name__} {name} {event.at}".encode(), digest)
    return digest
