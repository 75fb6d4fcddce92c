"""Sends requests to the controller in threads, so that the screen never waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from wire.http.client import Client, Refused, Unreachable

T = TypeVar("T")
Failure = Unreachable | Refused
Deliver = Callable[[Callable[[], None]], None]
"""Runs a function on the screen's own thread."""


class RequestWorkers:
    """Threads that send requests to the controller. Answers are delivered on the thread of the screen."""

    def __init__(self, connect: Callable[[], Client], deliver: Deliver, threads: int = 2) -> None:
        self._connect = connect
        self._deliver = deliver
        self._waiting: queue.SimpleQueue[Callable[[Client], None] | None] = queue.SimpleQueue()
        self._threads = threads

    def open(self) -> None:
        """Start the threads."""
        for number in range(self._threads):
            threading.Thread(target=self._carry, name=f"requests-{number}", daemon=True).start()

    def close(self) -> None:
        """Stop the threads. Requests that have not been sent are dropped."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def ask(self, question: Callable[[Client], T], then: Callable[[T | Failure], None]) -> None:
        """Send a request when a thread is free; `then` is called with the answer or the failure."""

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


def failure_text(failure: Failure) -> str:
    """The text of a failed request in one line: the error and its remedy."""
    if isinstance(failure, Refused):
        problem = failure.problem
        place = f"{problem.where}: " if problem.where else ""
        return f"{place}{problem.message}" + (f"  {problem.hint}" if problem.hint else "")
    return f"no answer: {failure.why}" + (f"  {failure.hint}" if failure.hint else "")
