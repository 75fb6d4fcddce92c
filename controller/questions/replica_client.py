"""The controller's side of the replica: starts it, feeds it commits, and asks it questions."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.events import Event
from controller.core.model.inputs import ApplyConfig, Input, Refusal
from controller.questions.engine_copy import QuestionRefused
from controller.questions.limits import QuestionRules
from controller.questions.messages import (
    LENGTH,
    Committed,
    Declined,
    Ended,
    QuestionAnswer,
    QuestionAsked,
    QuestionDropped,
    digest_of,
    pack,
    unpack,
)
from controller.questions.replica import begin
from controller.user_turns import TurnRefused, UserTurns

T = TypeVar("T")

WAIT_S = 15.0
"""Seconds after which a question that has not begun is refused. Clients wait longer than this."""
BRIEF_S, BRIEF_WAIT_S, BRIEF_AT_ONCE = 1.0, 2.0, 2
"""Budget, longest wait and number at once of questions that take no forecast."""
GRACE_S = 0.5
"""Seconds beyond the budget after which a question's process is killed."""
IDLE_S = 600.0
"""Seconds without a question after which the replica is ended, because following commits costs CPU time."""
MAX_UNREAD_BYTES = 64 << 20
"""A replica that leaves more bytes than this unread is ended."""
TRIES = 2
"""Replicas that a question is tried on, because one may die."""

log = logging.getLogger("corral.questions")


class ReplicaLost(Exception):
    """The replica ended while it was answering a question."""


class ReplicaLink:
    """The connection to a running replica, and its open questions."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.lost = False
        self._writer = writer
        self._inboxes: dict[int, asyncio.Queue[QuestionAnswer | Declined | Ended | None]] = {}
        self._number = 0
        self._hearing = asyncio.create_task(self._hear(reader), name="replica")

    def send(self, message: object) -> None:
        """Send a message; never blocks. A replica that is too far behind is ended instead."""
        if self.lost:
            return
        self._writer.write(pack(message))
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            log.warning("the replica for questions is too far behind; it is made again for the next one")
            self.end()

    async def ask(
        self, work: Callable[..., Iterator[T]], arguments: tuple[Any, ...], now: float, budget_s: float
    ) -> T | None:
        """The latest answer within the budget; None if there is none."""
        self._number += 1
        number, latest = self._number, None
        inbox = self._inboxes[number] = asyncio.Queue()
        if self.lost:
            raise ReplicaLost
        self.send(QuestionAsked(number, work, arguments, now, budget_s))
        try:
            async with asyncio.timeout(budget_s + GRACE_S):
                while True:
                    match await inbox.get():
                        case QuestionAnswer(answer=answer):
                            latest = answer
                        case Declined(refusal=refusal):
                            raise QuestionRefused(refusal)
                        case Ended(failure=failure):
                            if failure:
                                log.warning("a question was not answered in full: %s", failure)
                            return latest
                        case None:
                            raise ReplicaLost
        except TimeoutError:
            return latest
        finally:
            del self._inboxes[number]
            self.send(QuestionDropped(number))

    def end(self) -> None:
        """Kill the replica, and with it the processes that answer questions."""
        if not self.lost:
            self.lost = True
            os.kill(self.pid, signal.SIGKILL)  # not collected yet, so the number is still its own

    @property
    def busy(self) -> bool:
        """Whether the replica is answering questions."""
        return bool(self._inboxes)

    async def ended(self) -> None:
        """Wait until the replica has ended."""
        await self._hearing

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head = await reader.readexactly(LENGTH.size)
                message = unpack(head + await reader.readexactly(LENGTH.unpack(head)[0]))
                if message.number in self._inboxes:
                    self._inboxes[message.number].put_nowait(message)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.end()
            self._writer.close()
            await asyncio.get_running_loop().run_in_executor(None, os.waitpid, self.pid, 0)
            for inbox in self._inboxes.values():
                inbox.put_nowait(None)


class ReplicaClient:
    """Asks the replica, which is forked for the first question and again whenever it has ended."""

    def __init__(
        self,
        config: Config,
        engine: Callable[[], Engine],
        seq: Callable[[], int],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self.rules = QuestionRules.of(config)
        self._config = config
        self._engine = engine
        self._seq = seq
        self._settled = settled
        self._line = UserTurns(self.rules.at_once, WAIT_S)
        self._brief = UserTurns(BRIEF_AT_ONCE, BRIEF_WAIT_S)
        self._link: ReplicaLink | None = None
        self._starting = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        """Ends the replica; None while no question has asked to keep it."""

    @property
    def replica(self) -> int | None:
        """The process id of the replica; None if there is none."""
        return None if self._link is None or self._link.lost else self._link.pid

    async def ask(
        self,
        user: str,
        work: Callable[..., Iterator[T]],
        *arguments: Any,
        now: Callable[[], float],
        within_s: float | None = None,
        keep_replica: bool = True,
    ) -> T | None:
        """The best answer that `work(scene, *arguments)` yields in its time; None if it yields none.

        It runs in a process of its own, on a copy of the state that knows all that was acknowledged so far.
        Without `keep_replica` the replica ends afterwards, unless other questions need it.
        """
        async with _turn(self._line, user):
            return await self._answer(work, arguments, now, self.rules.within(within_s), keep=keep_replica)

    async def ask_briefly(
        self, user: str, work: Callable[..., Iterator[T]], *arguments: Any, now: Callable[[], float]
    ) -> T | None:
        """The answer to a question that takes no forecast; it does not wait for those that do."""
        async with _turn(self._brief, user):
            return await self._answer(work, arguments, now, BRIEF_S, keep=True)

    async def _answer(
        self,
        work: Callable[..., Iterator[T]],
        arguments: tuple[Any, ...],
        now: Callable[[], float],
        budget_s: float,
        *,
        keep: bool,
    ) -> T | None:
        for _ in range(TRIES):
            link = await self._replica(keep=keep)
            with suppress(ReplicaLost):
                answer = await link.ask(work, arguments, now(), budget_s)
                if self._idle is None and not link.busy:
                    link.end()
                return answer
        raise QuestionRefused(
            Refusal(
                "busy",
                "the process that answers questions has ended unexpectedly",
                hint="Ask again in a moment; the controller's log says more.",
            )
        )

    def committed(self, handled: Sequence[tuple[Input, float]], events: Sequence[Event], seq: int) -> None:
        """Send the replica the inputs of a batch that is on disk."""
        if any(isinstance(given, ApplyConfig) for given, _ in handled):
            self.forget()  # a pipeline holds plugins, which are not sent: the next replica is forked with it
        elif self._link is not None and not self._link.lost and handled:
            self._link.send(Committed(tuple(handled), seq, digest_of(events)))

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from now on."""
        rules = QuestionRules.of(config)
        self._line.resize(rules.at_once - self.rules.at_once)
        self.rules, self._config = rules, config
        self.forget()

    def forget(self) -> None:
        """End the replica, because the engine that it follows was replaced."""
        if self._link is not None:
            self._link.end()

    def _end_idle(self) -> None:
        self._idle = None
        self.forget()

    async def close(self) -> None:
        """End the replica and all open questions."""
        if self._idle is not None:
            self._idle.cancel()
        if self._link is not None:
            self._link.end()
            await self._link.ended()

    async def _replica(self, *, keep: bool) -> ReplicaLink:
        if keep:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
        async with self._starting:
            if self._link is None or self._link.lost:
                self._link = await self._begin()
            return self._link

    async def _begin(self) -> ReplicaLink:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            await self._settled()  # from here to the fork nothing is awaited: no landing can begin
            pid = begin(theirs, self._engine(), self._config, self._seq(), self.rules.memory_mib)
            self._link = ReplicaLink(pid, reader, writer)
        log.info("process %d answers questions, from entry %d on", pid, self._seq())
        return self._link


@asynccontextmanager
async def _turn(turns: UserTurns, user: str) -> AsyncIterator[None]:
    """A turn of this user. Raises QuestionRefused if there is none in time."""
    try:
        async with turns.turn(user):
            yield
    except TurnRefused as refused:
        raise QuestionRefused(refused.refusal) from None
