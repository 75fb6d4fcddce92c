"""Requests are sent in other threads. Confirmed changes are sent or reported also if the user quits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.limits import PATIENCE_S
from tests.tui.recorded import RecordedClient
from tui.data.request_workers import OrderResults, RequestWorkers
from wire.api.problem import Problem
from wire.http.client import Client, Refused

CANCEL = "corral job cancel 7"


def run(function: Callable[[], None]) -> None:
    """Deliver an answer to a screen."""
    function()


def drop(_function: Callable[[], None]) -> None:
    """Deliver an answer after the screen has closed."""


def busy(workers: RequestWorkers) -> threading.Event:
    """Let the only thread wait in a question. Return the event that ends the question."""
    begun, go = threading.Event(), threading.Event()

    def question(_client: Client) -> None:
        begun.set()
        go.wait(PATIENCE_S)

    workers.ask(question, lambda _: None)
    assert begun.wait(PATIENCE_S)
    return go


def opened(deliver: Callable[[Callable[[], None]], None]) -> RequestWorkers:
    workers = RequestWorkers(lambda: RecordedClient([]), deliver, threads=1)
    workers.open()
    return workers


def refuse(_client: Client) -> None:
    raise Refused(409, Problem("conflict", "job 7 is COMPLETED already", "job"))


def test_waiting_changes_are_sent_after_the_close_and_questions_are_not() -> None:
    workers, sent = opened(drop), list[str]()
    go = busy(workers)
    workers.ask(lambda _: sent.append("question"), lambda _: None)
    workers.change(CANCEL, lambda _: sent.append("change"), lambda _: None)
    workers.close()
    assert not workers.wait(0.0)
    go.set()
    assert workers.wait(PATIENCE_S)
    assert (sent, workers.give_up()) == (["change"], [])


def test_a_change_that_cannot_be_sent_is_reported_and_never_sent() -> None:
    before = set(threading.enumerate())
    workers, sent = opened(drop), list[str]()
    go = busy(workers)
    workers.change(CANCEL, lambda _: sent.append("change"), lambda _: None)
    workers.close()
    assert workers.give_up() == [f"{CANCEL}: not sent"]
    go.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
    assert sent == []


def test_a_change_without_an_answer_is_reported() -> None:
    workers = opened(drop)
    begun, go = threading.Event(), threading.Event()

    def request(_client: Client) -> None:
        begun.set()
        go.wait(PATIENCE_S)

    workers.change(CANCEL, request, lambda _: None)
    assert begun.wait(PATIENCE_S)
    workers.close()
    assert workers.give_up() == [f"{CANCEL}: no answer yet; check whether the change was made"]
    go.set()


def test_an_error_is_reported_only_if_no_screen_has_shown_it() -> None:
    error = f"{CANCEL}: job: job 7 is COMPLETED already"
    for deliver, reported in ((drop, [error]), (run, [])):
        workers, shown = opened(deliver), list[object]()
        workers.change(CANCEL, refuse, shown.append)
        workers.close()
        assert workers.wait(PATIENCE_S)
        assert (workers.give_up(), len(shown)) == (reported, 0 if reported else 1)


def test_the_first_error_of_several_jobs_is_reported() -> None:
    failure = Refused(409, Problem("conflict", "job 7 is COMPLETED already", "job"))
    workers = opened(drop)
    workers.change(CANCEL, lambda _: OrderResults((), ((7, failure), (8, failure))), lambda _: None)
    assert workers.wait(PATIENCE_S)
    assert workers.give_up() == [f"{CANCEL}: 2 failed: job: job 7 is COMPLETED already"]
    workers.close()
