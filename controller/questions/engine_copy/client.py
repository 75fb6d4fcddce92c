"""Starts the engine copy (a separate process), sends the controller's inputs to the engine copy, and asks it
questions.
"""

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
from controller.core.model.decision.decision import Refusal
from controller.core.model.events.event import Event
from controller.core.model.inputs.controller_inputs import ApplyConfig
from controller.core.model.inputs.input import Input
from controller.questions.engine_copy.copy_process import begin
from controller.questions.engine_copy.deadline import busy_limit_s
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.engine_copy.messages import (
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
from controller.questions.engine_copy.question_limits import QuestionRules
from controller.user_turns import TurnRefused, UserTurns

T = TypeVar("T")

WAIT_S = 15.0
"""Seconds. A question that has waited for this time without being processed is refused. HTTP clients wait
longer than this for their answers.
"""
BRIEF_S, BRIEF_WAIT_S, BRIEF_AT_ONCE = 1.0, 2.0, 2
"""Limits of questions without a forecast: seconds for the answer, the longest wait in seconds, and the number
of questions that are answered at the same time.
"""
GRACE_S = 0.5
"""Seconds. If the process that answers a question exceeds its time limit by more than this, kill
the process.
"""
IDLE_S = 600.0
"""Seconds. After this time without a question the engine copy is ended, because the engine copy needs CPU
time to repeat each commit of the controller.
"""
MAX_UNREAD_BYTES = 64 << 20
"""Bytes. An engine copy is killed if more bytes of messages than this wait to be read by it."""
TRIES = 2
"""The greatest number of engine copies to which one question is sent. If an engine copy ends before it has
answered, the question is sent to a new engine copy.
"""

log = logging.getLogger("corral.questions")


class EngineCopyLost(Exception):
    """Raised if the engine copy ended before answering the question."""


class EngineCopyLink:
    """The connection to a running engine copy (a process with a copy of the engine), with the questions, such
    as explain, that the engine copy has not answered yet.
    """

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.lost = False
        self._writer = writer
        self._inboxes: dict[int, asyncio.Queue[QuestionAnswer | Declined | Ended | None]] = {}
        self._number = 0
        self._receiver = asyncio.create_task(self._receive(reader), name="engine-copy")

    def send(self, message: object) -> None:
        """Send a message to the engine copy (a separate process); never blocks. Kill the engine copy if more
        than MAX_UNREAD_BYTES wait to be read by it.
        """
        if self.lost:
            return
        self._writer.write(pack(message))
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            log.warning("the engine copy for questions is too far behind; the next question starts a new one")
            self.end()

    async def ask(
        self, work: Callable[..., Iterator[T]], arguments: tuple[Any, ...], now: float, budget_s: float
    ) -> T | None:
        """Let the engine copy call `work` with its engine and `arguments` in a forked process. Return the
        last answer that arrives in time, or None if no answer arrives. The time limit `budget_s` becomes
        longer on a busy machine (see Deadline).
        """
        self._number += 1
        number, latest = self._number, None
        inbox = self._inboxes[number] = asyncio.Queue()
        if self.lost:
            raise EngineCopyLost
        self.send(QuestionAsked(number, work, arguments, now, budget_s))
        try:
            async with asyncio.timeout(busy_limit_s(budget_s) + GRACE_S):
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
                            raise EngineCopyLost
        except TimeoutError:
            return latest
        finally:
            del self._inboxes[number]
            self.send(QuestionDropped(number))

    def end(self) -> None:
        """Kill the engine copy (a separate process). The processes that answer questions end together with
        the engine copy.
        """
        if not self.lost:
            self.lost = True
            # The kill cannot hit another process, because the kernel reuses the pid only after the exit
            # status is collected.
            os.kill(self.pid, signal.SIGKILL)

    @property
    def busy(self) -> bool:
        return bool(self._inboxes)

    async def ended(self) -> None:
        await self._receiver

    async def _receive(self, reader: asyncio.StreamReader) -> None:
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


class EngineCopyClient:
    """Starts an engine copy (a separate process) and asks the engine copy questions, such as explain and
    what-if.

    The first question starts the engine copy, and so does the next question after the engine copy has ended.
    Each commit of the controller is sent to the engine copy.
    """

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
        self._link: EngineCopyLink | None = None
        self._starting = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        """The timer that ends the engine copy after IDLE_S seconds without a question; None if all questions
        since the start of the engine copy had `keep_copy` False.
        """

    @property
    def copy_pid(self) -> int | None:
        """Return the process id of the engine copy; None if no engine copy runs."""
        return None if self._link is None or self._link.lost else self._link.pid

    async def ask(
        self,
        user: str,
        work: Callable[..., Iterator[T]],
        *arguments: Any,
        now: Callable[[], float],
        within_s: float | None = None,
        keep_copy: bool = True,
    ) -> T | None:
        """Call `work(engine_copy, *arguments)` in a separate process. `work` yields answers, each more
        complete than the previous one. Return the last answer that `work` yields in time, or None.

        The copy of the engine includes all inputs that were committed before the call. If `keep_copy` is
        False, the engine copy ends after the answer, unless other questions use it.
        """
        async with _turn(self._line, user):
            return await self._answer(work, arguments, now, self.rules.within(within_s), keep=keep_copy)

    async def ask_briefly(
        self, user: str, work: Callable[..., Iterator[T]], *arguments: Any, now: Callable[[], float]
    ) -> T | None:
        """Ask a short question that needs no forecast, such as why a job waits. Such questions do not wait
        for questions that need forecasts. The result is as for ask()."""
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
            link = await self._copy(keep=keep)
            with suppress(EngineCopyLost):
                answer = await link.ask(work, arguments, now(), budget_s)
                if self._idle is None and not link.busy:
                    link.end()
                return answer
        raise QuestionRefused(
            Refusal(
                "busy",
                "the process that answers questions has ended unexpectedly",
                hint="Try again in a moment; the controller's log has the reason.",
            )
        )

    def committed(self, handled: Sequence[tuple[Input, float]], events: Sequence[Event], seq: int) -> None:
        """Send the inputs of a committed batch to the engine copy, so that its copy of the engine follows the
        controller's.
        """
        if any(isinstance(given, ApplyConfig) for given, _ in handled):
            # End the engine copy, because the plugins of the new configuration cannot be sent to a running
            # process. The next engine copy is forked from this process, which has these plugins.
            self.forget()
        elif self._link is not None and not self._link.lost and handled:
            self._link.send(Committed(tuple(handled), seq, digest_of(events)))

    def reconfigure(self, config: Config) -> None:
        """Use another configuration. The engine copy ends, and the next question starts a new one."""
        rules = QuestionRules.of(config)
        self._line.resize(rules.at_once - self.rules.at_once)
        self.rules, self._config = rules, config
        self.forget()

    def forget(self) -> None:
        """End the engine copy, because the controller's engine was replaced."""
        if self._link is not None:
            self._link.end()

    def _end_idle(self) -> None:
        self._idle = None
        self.forget()

    async def close(self) -> None:
        """End the engine copy (a separate process) and the processes that answer questions."""
        if self._idle is not None:
            self._idle.cancel()
        if self._link is not None:
            self._link.end()
            await self._link.ended()

    async def _copy(self, *, keep: bool) -> EngineCopyLink:
        if keep:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
        async with self._starting:
            if self._link is None or self._link.lost:
                self._link = await self._begin()
            return self._link

    async def _begin(self) -> EngineCopyLink:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            # Wait until all changes are on disk. Do not await between this line and the fork, because a new
            # batch of inputs could change the engine's state meanwhile.
            await self._settled()
            pid = begin(theirs, self._engine(), self._config, self._seq(), self.rules.memory_mib)
            self._link = EngineCopyLink(pid, reader, writer)
        log.info("process %d answers questions, from entry %d on", pid, self._seq())
        return self._link


@asynccontextmanager
async def _turn(turns: UserTurns, user: str) -> AsyncIterator[None]:
    """Wait until one more question of this user may be answered. Raise QuestionRefused if the wait is too
    long.
    """
    try:
        async with turns.turn(user):
            yield
    except TurnRefused as refused:
        raise QuestionRefused(refused.refusal) from None
