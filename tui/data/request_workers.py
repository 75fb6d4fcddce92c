"""Sends requests to the controller in separate threads, so that the screen never waits for an answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from wire.api.problem import EFFECT_CHANGED
from wire.http.client import Client, Refused, Unreachable
from wire.text import printable

T = TypeVar("T")
Failure = Unreachable | Refused
Deliver = Callable[[Callable[[], None]], None]
"""Type of a function that runs another function on the screen's thread."""


@dataclass(frozen=True)
class OrderResults(Generic[T]):
    """The result of changing several jobs or nodes: the changed ones (`done`), and the others, each with the
    error of its request (`failed`).
    """

    done: tuple[T, ...]
    failed: tuple[tuple[T | str, Failure], ...]


@dataclass(eq=False)
class _Change:
    """A change that the user has confirmed. `command` is the shell command for the same change. `error` is
    the error of the request; empty for a change without an error.
    """

    command: str
    sent: bool = False
    answered: bool = False
    error: str = ""


class RequestWorkers:
    """Threads that send requests to the controller. The answers are passed to the screen's thread.

    1. `ask` adds a question, and `change` adds a change that the user has confirmed. A thread takes them in
       this order.
    2. After `close`, the threads drop the questions that still wait, because no screen shows their answers,
       and send the changes that still wait.
    3. `wait` waits for the answers to these changes. `give_up` drops the changes that still wait, and returns
       a line for each change whose error the user has not seen.
    """

    def __init__(self, connect: Callable[[], Client], deliver: Deliver, threads: int = 2) -> None:
        self._connect = connect
        self._deliver = deliver
        self._waiting: queue.SimpleQueue[Callable[[Client], None] | None] = queue.SimpleQueue()
        self._threads = threads
        self._changes: list[_Change] = []
        """The changes whose results the screen has not shown."""
        self._turn = threading.Condition()
        """Held while a change is read or written."""
        self._closed = False
        self._given_up = False

    def open(self) -> None:
        for number in range(self._threads):
            threading.Thread(target=self._carry, name=f"requests-{number}", daemon=True).start()

    def close(self) -> None:
        """Drop the questions that wait. Let the threads end after they have sent the changes that wait."""
        self._closed = True
        for _ in range(self._threads):
            self._waiting.put(None)

    def ask(self, question: Callable[[Client], T], then: Callable[[T | Failure], None]) -> None:
        """Send a question as soon as a thread is free. Then call `then` on the screen's thread with the
        answer or the failure.
        """

        def carry(client: Client) -> None:
            if not self._closed:
                answer = _answer(question, client)
                self._deliver(lambda: then(answer))

        self._waiting.put(carry)

    def change(
        self, command: str, request: Callable[[Client], T], then: Callable[[T | Failure], None]
    ) -> None:
        """Send a change as soon as a thread is free. Then call `then` on the screen's thread with the answer
        or the failure. `command` is the shell command for the same change.
        """
        change = _Change(printable(command))
        with self._turn:
            self._changes.append(change)

        def shown(answer: T | Failure) -> None:
            with self._turn:
                self._changes.remove(change)
            then(answer)

        def carry(client: Client) -> None:
            with self._turn:
                if self._given_up:
                    return
                change.sent = True
            answer = _answer(request, client)
            with self._turn:
                change.answered, change.error = True, _error_of(answer)
                self._turn.notify_all()
            self._deliver(lambda: shown(answer))

        self._waiting.put(carry)

    def wait(self, seconds: float) -> bool:
        """Wait until all changes are answered, but at most `seconds` seconds. Return whether they are."""
        with self._turn:
            return self._turn.wait_for(lambda: all(each.answered for each in self._changes), seconds)

    def give_up(self) -> list[str]:
        """Do not send the changes that still wait. Return a line for each change that was not sent, that has
        no answer, or whose error the screen has not shown.
        """
        with self._turn:
            self._given_up = True
            return [f"{each.command}: {_outcome(each)}" for each in self._changes if _outcome(each)]

    def _carry(self) -> None:
        client = self._connect()
        while (errand := self._waiting.get()) is not None:
            errand(client)
        client.close()


def _answer(request: Callable[[Client], T], client: Client) -> T | Failure:
    try:
        return request(client)
    except (Unreachable, Refused) as failure:
        return failure


def _error_of(answer: object) -> str:
    """Return the first error in the answer to a change; empty if there is none."""
    if isinstance(answer, OrderResults):
        return f"{len(answer.failed)} failed: {failure_text(answer.failed[0][1])}" if answer.failed else ""
    return failure_text(answer) if isinstance(answer, (Unreachable, Refused)) else ""


def _outcome(change: _Change) -> str:
    if not change.sent:
        return "not sent"
    return change.error if change.answered else "no answer yet; check whether the change was made"


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
