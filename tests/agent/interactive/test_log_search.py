"""Logs are searched by the agent in blocks, forward and back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.interactive import log_search
from agent.interactive.log_search import LogSearch
from tests.agent.agent_process import AgentProcess
from wire.agent.orders import Ping, SearchLog, StopReading
from wire.agent.reports import LogFound

Run = Callable[..., AgentProcess]


class Answers:
    """Collects the messages of the agent."""

    def __init__(self) -> None:
        self.sent: list[LogFound] = []

    def send(self, message: LogFound) -> None:
        self.sent.append(message)


class OneLog:
    """A spool with one log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open_log(self, _key: object, _stream: str) -> int:
        return os.open(self._path, os.O_RDONLY)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[LogFound]]:
    """A function that searches a text in a log, in blocks of 10 bytes, and at most 35 bytes at a time."""
    monkeypatch.setattr(log_search, "BLOCK_BYTES", 10)
    monkeypatch.setattr(log_search, "MOST_BYTES", 35)

    def search(data: bytes, text: str, offset: int = 0, back: bool = False) -> list[LogFound]:
        (tmp_path / "log").write_bytes(data)
        answers = Answers()
        found = LogSearch(OneLog(tmp_path / "log"), lambda _: True, answers)
        found.search(SearchLog(1, 1, 1, text, "stdout", offset, back))
        for _ in range(20):
            found.read_blocks()
        assert not found.ready
        return answers.sent

    return search


def test_every_match_is_found_from_every_place(searched: Callable[..., list[LogFound]]) -> None:
    data = b"abcABC..abc...abcabc"
    begins = [at for at in range(len(data)) if data[at : at + 3].lower() == b"abc"]
    for offset in range(len(data) + 1):
        (forward,) = searched(data, "abc", offset)
        assert forward.found == next((at for at in begins if at >= offset), None)
        (back,) = searched(data, "abc", offset, True)
        assert back.found == next((at for at in reversed(begins) if at < offset), None)


def test_too_many_searches_are_refused_until_one_has_ended(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x")
    answers = Answers()
    search = LogSearch(OneLog(tmp_path / "log"), lambda _: True, answers)
    for request in range(log_search.MOST_SEARCHES + 1):
        search.search(SearchLog(request, 1, 1, "x", "stdout", 0, False))
    (refused,) = answers.sent
    assert (refused.request, refused.error) == (
        log_search.MOST_SEARCHES,
        f"{log_search.MOST_SEARCHES} searches run on this node already; try again in some seconds",
    )
    search.read_blocks()
    search.search(SearchLog(99, 1, 1, "x", "stdout", 0, False))
    search.read_blocks()
    assert answers.sent[-1].found == 0


def test_long_search_answers_with_the_place_it_has_reached(searched: Callable[..., list[LogFound]]) -> None:
    data = b"." * 100 + b"x"
    assert searched(data, "x") == [LogFound(1, None, 40, 101)]
    assert searched(data, "x", 40) == [LogFound(1, None, 80, 101)]
    assert searched(data, "x", 80) == [LogFound(1, 100, 101, 101)]


def test_search_in_a_real_agent_and_its_refusals(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "seq 1 1000000; echo done")
    agent.ended(1)

    def answer(number: int) -> LogFound:
        return agent.until(
            lambda said: next((e for e in said if isinstance(e, LogFound) and e.request == number), None)
        )

    data = b"".join(b"%d\n" % number for number in range(1, 1_000_001)) + b"done\n"
    agent.send(SearchLog(1, 1, 1, "done"))
    assert answer(1) == LogFound(1, data.index(b"done"), len(data), len(data))
    agent.send(SearchLog(2, 1, 1, "x", "../record"), SearchLog(3, 9, 1, "x"))
    assert answer(2).error == "there is no stream '../record'; choose stdout or stderr"
    assert answer(3).error == "this node has no log of attempt 1 of job 9"
    agent.send(SearchLog(4, 1, 1, "none of it"), StopReading(4), Ping(1))
    agent.await_pong(1)
    assert not [each for each in agent.received if isinstance(each, LogFound) and each.request == 4]
