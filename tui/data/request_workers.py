"""Sends requests to the controller in separate threads, so that the screen never waits for an answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from wire.api.problem import EFFECT_CHANGED
from wire.http.client import Client, Refused, Unreachable

T = TypeVar("T")
Failure = Unreachable | Refused
Deliver = Callable[[Callable[[], None]], None]
"""Type of a function that runs another function on the screen's thread."""


class RequestWorkers:
    """Threads that send requests to the controller. The answers are passed to the screen's thread."""

    def __init__(self, connect: Callable[[], Client], deliver: Deliver, threads: int = 2) -> None:
        self._connect = connect
        self._deliver = deliver
        self._waiting: queue.SimpleQueue[Callable[[Client], None] | None] = queue.SimpleQueue()
        self._threads = threads

    def open(self) -> None:
        for number in range(self._threads):
            threading.Thread(target=self._carry, name=f"requests-{number}", daemon=True).start()

    def close(self) -> None:
        """Let the threads end after they have sent the requests that are already waiting."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def ask(self, question: Callable[[Client], T], then: Callable[[T | Failure], None]) -> None:
        """Send a request as soon as a thread is free. Then call `then` on the screen's thread with the answer
        or the failure.
        """

        def carry(client: Client) -> None:
            answer: T | Failure
            try:
                answer = question(client)
            except (Unreachable, Refused) as failure:
                answer = failure
            self._deliver(lambda: then(answer))

        self._waiting.put(carry)

    def _carry(self) -> None:
        client = self._connect()
        while (errand := self._waiting.get()) is not None:
            errand(client)
        client.close()


def effect_changed(failure: object) -> bool:
    """Return True if the controller has refused a change because its effect is no longer the shown one."""
    return isinstance(failure, Refused) and failure.problem.where == EFFECT_CHANGED


def failure_text(failure: Failure) -> str:
    """Return one line about a failed request: the error, and the next step for the user."""
    if isinstance(failure, Refused):
        problem = failure.problem
        place = f"{problem.where}: " if problem.where and not effect_changed(failure) else ""
        return f"{place}{problem.message}" + (f"  {problem.hint}" if problem.hint else "")
    return f"no answer: {failure.why}" + (f"  {failure.hint}" if failure.hint else "")
