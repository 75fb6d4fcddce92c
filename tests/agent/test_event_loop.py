"""The event loop of the agent."""

from __future__ import annotations

import os

from agent.event_loop import EventLoop


def test_a_callback_that_was_removed_in_the_same_iteration_is_not_run() -> None:
    loop = EventLoop()
    pipes = [os.pipe(), os.pipe()]
    called: list[int] = []

    def take(number: int) -> None:
        called.append(number)
        loop.on_readable(pipes[1 - number][0], None)

    for number, (source, sink) in enumerate(pipes):
        loop.on_readable(source, lambda number=number: take(number))  # type: ignore[misc]
        os.write(sink, b"x")
    loop.run_once()
    assert len(called) == 1, "the first callback has removed the second one"
    loop.run_once()
    assert called == [called[0]] * 2, "a callback that was not removed is called again"
    for source, sink in pipes:
        os.close(source)
        os.close(sink)


def test_a_replaced_callback_is_not_run_in_the_same_iteration() -> None:
    loop = EventLoop()
    pipes = [os.pipe(), os.pipe()]
    called: list[str] = []

    def replace_other(number: int) -> None:
        called.append("old")
        os.read(pipes[number][0], 1)
        loop.on_readable(pipes[1 - number][0], lambda: called.append("new"))

    for number, (source, sink) in enumerate(pipes):
        loop.on_readable(source, lambda number=number: replace_other(number))  # type: ignore[misc]
        os.write(sink, b"x")
    loop.run_once()
    assert called == ["old"]
    loop.run_once()
    assert called.count("new") == 1, "the new callback has the event that the old one did not get"
    for source, sink in pipes:
        os.close(source)
        os.close(sink)
