"""Delivers the messages of the outbox. One asyncio task for each sink (mail server, webhook or chat) sends
its messages and tries again after failures."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from controller.config import Config
from controller.config.tables.notify import SinkSection
from controller.notify.messages import Message
from controller.notify.outbox import Outbox
from controller.notify.sinks import http, smtp
from controller.notify.sinks.delivery_error import DeliveryFailed

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 600.0
"""A failed message is tried again after FIRST_RETRY_S seconds. This time doubles with each failure up to
LAST_RETRY_S.
"""
LONGEST_WAIT_S = 60.0
"""Seconds. A task reads the clock at least this often, because the system clock can be set while the task
waits."""

log = logging.getLogger("corral.notify")


async def deliver(sink: SinkSection, message: Message, cluster: str, link: str) -> None:
    """Send a message to a sink. Raise DeliveryFailed if the sink does not accept the message."""
    await (smtp.send if sink.kind == "smtp" else http.post)(sink, message, cluster, link)


class Delivery:
    """Runs the tasks that send messages, and counts the successful and failed tries for each sink.

    One task for each sink
    1. Wait until a message of the sink is due. If the message was joined from several messages (a digest),
       write its row to the database before sending.
    2. Send the message. If the sink accepts the message, remove it from the outbox.
    3. If the refusal is final, or if the message is older than `give_up_s`, make the message a dead letter,
       which is not tried again.
    4. After any other failure, try the message again after 0.5 s, 1 s, 2 s, 4 s and so on, at most 10
       minutes. Meanwhile pause the whole sink: 0.5 s after one failure, 1 s after two failures in a row, 2 s
       after three, and so on. If the sink names a longer time, wait for that time. So an unreachable sink is
       not tried for each message.

    Messages of one sink are sent one after the other. A sink that does not answer delays no other sink.
    """

    def __init__(
        self, outbox: Outbox, now: Callable[[], float], flush: Callable[[], Awaitable[None]]
    ) -> None:
        self.delivered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        """The reason why the last try of a sink failed, by sink. Sinks whose last try succeeded are
        left out.
        """
        self._outbox = outbox
        self._now = now
        self._flush = flush
        self._config: Config | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._in_flight: dict[str, Message] = {}
        self._again: set[str] = set()
        """The sinks whose pause must end now, because an operator has ordered to try messages again."""

    def adopt(self, config: Config) -> None:
        """Use the sinks of a configuration. Messages to sinks that no longer exist become dead letters. Call
        this method in the event loop.
        """
        old, self._config = self._config, config
        for name in [*self._tasks]:
            if old is None or old.notify.sinks.get(name) != config.notify.sinks.get(name):
                self._tasks.pop(name).cancel()
                self._outbox.release(self._in_flight.pop(name, None))
        for name in config.notify.sinks:
            if name not in self._tasks:
                self._wakes[name] = asyncio.Event()
                self._tasks[name] = asyncio.create_task(self._run(name))
        for message in [
            each for each in self._outbox.waiting.values() if each.sink not in config.notify.sinks
        ]:
            self._outbox.give_up(message, f"there is no sink {message.sink} any more", config.notify.max_dead)

    def wake(self) -> None:
        """Wake the tasks, so that new messages that are due are sent at once."""
        for event in self._wakes.values():
            event.set()

    def end_pauses(self) -> None:
        """Try the due messages of all sinks now, also of sinks that pause after a failure."""
        self._again.update(self._wakes)
        self.wake()

    def close(self) -> None:
        """Stop sending. Messages whose delivery is interrupted are sent again after the next start of the
        controller."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _run(self, name: str) -> None:
        failures = 0
        while True:
            try:
                message = await self._next(name)
                self._in_flight[name] = message
                pause_s = await self._try(name, message, failures)
                self._in_flight.pop(name, None)
                failures = failures + 1 if pause_s else 0
                await self._pause(name, pause_s)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("sink %s: a message could not be processed", name)
                self._outbox.release(self._in_flight.pop(name, None))
                await asyncio.sleep(LONGEST_WAIT_S)

    async def _next(self, name: str) -> Message:
        """Wait until a message is due, and return the message. If the message was joined from several
        messages, its row is already on disk.
        """
        wake = self._wakes[name]
        while True:
            wake.clear()
            message = self._outbox.take(name, self._now())
            if message is not None:
                if len(message.notices) > 1 and self._outbox.changed:
                    self._in_flight[name] = message
                    await self._flush()
                return message
            due = self._outbox.next_due(name)
            wait_s = LONGEST_WAIT_S if due is None else min(LONGEST_WAIT_S, max(0.0, due - self._now()))
            with suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), wait_s)

    async def _try(self, name: str, message: Message, failures: int) -> float:
        """Send a message once. Return the seconds for which the sink pauses: 0 after a delivery or a final
        refusal.
        """
        assert self._config is not None
        notify, cluster = self._config.notify, self._config.cluster.name
        try:
            await deliver(notify.sinks[name], message, cluster, notify.link)
        except DeliveryFailed as failed:
            self.failed[name] += 1
            if self.problems.get(name) != failed.message:
                log.warning("sink %s: message %s was not delivered: %s", name, message.id, failed.message)
            self.problems[name] = failed.message
            late = self._now() - message.made_at >= notify.give_up_s
            if failed.final or late:
                self._outbox.give_up(message, failed.message, notify.max_dead)
                return 0.0
            wait_s = max(failed.wait_s, _backoff(message.tries))
            self._outbox.postpone(message, self._now() + wait_s, failed.message)
            return max(failed.wait_s, _backoff(failures))
        self.delivered[name] += 1
        self.problems.pop(name, None)
        self._outbox.delivered(message)
        return 0.0

    async def _pause(self, name: str, seconds: float) -> None:
        """Wait for the given seconds, or until end_pauses() is called."""
        clock, wake = asyncio.get_running_loop().time, self._wakes[name]
        end = clock() + seconds
        self._again.discard(name)
        while clock() < end and name not in self._again:
            wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), end - clock())


def _backoff(times: int) -> float:
    """Return the seconds before the next try after `times` earlier failures: 0.5, 1, 2, 4 … 600."""
    return min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(times, 20))
