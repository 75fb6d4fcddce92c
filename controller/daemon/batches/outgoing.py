"""The replies and orders of one batch of inputs. They are sent when the events of the batch are on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.core.model.decision.decision import Decision, Reply
from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.event import Event


@dataclass(slots=True)
class Outgoing:
    """The decisions of the engine about the inputs of one batch. `add` collects them. After the commit,
    `send` sends the replies and then the orders.
    """

    events: list[Event] = field(default_factory=list)
    _effects: list[Effect] = field(default_factory=list)
    _replies: list[tuple[asyncio.Future[Reply], Reply]] = field(default_factory=list)
    _cycle_requests: list[asyncio.Future[int]] = field(default_factory=list)
    _placed: int = 0

    def add(self, decision: Decision, future: asyncio.Future[Reply] | None = None) -> None:
        """Add the decision about an input, and the future of the caller that waits for its reply."""
        self.events += decision.events
        self._effects += decision.effects
        if future is not None:
            self._replies.append((future, decision.reply))

    def answer_cycle_requests(self, requests: list[asyncio.Future[int]], placed: int) -> None:
        """Add the callers that requested the scheduling cycle of this batch. `send` replies with the number
        of jobs that the cycle has placed.
        """
        self._cycle_requests, self._placed = requests, placed

    def fail(self, failure: Exception) -> None:
        """Raise the exception `failure` in every caller that has requested a scheduling cycle."""
        for future in self._cycle_requests:
            if not future.done():
                future.set_exception(failure)

    def send(self, may_act: Callable[[], bool], send_order: Callable[[SendToNode], None]) -> None:
        """Reply to the callers, then send the orders to the agents."""
        for future, reply in self._replies:
            if not future.done():
                future.set_result(reply)
        for request in self._cycle_requests:
            if not request.done():
                request.set_result(self._placed)
        for effect in self._effects:
            for order in effect.orders():
                # Check the lease before each order, because this process may have been suspended since the
                # commit, and another controller may lead now. That controller makes the order again.
                if may_act():
                    send_order(order)


def placed_jobs(decision: Decision) -> int:
    """Return the number of jobs that a decision places."""
    return sum(isinstance(event, JobPlaced) for event in decision.events)
