"""A time limit for every test. A test that exceeds the limit fails, and the report shows where it waited.

1. Before the setup, the call and the teardown of a test, SIGALRM is set to arrive after LIMIT_S.
2. Its handler fails the test from within the wait: Popen.wait, join, queue.get, a loop, an asyncio loop.
   subprocess.run ends its child on the way out. The other tests run.
3. SIGALRM repeats every REPEAT_S, because an asyncio loop keeps what a callback raises to itself.

A wait in C code that retries system calls is not interrupted; faulthandler_timeout in pyproject.toml ends
the run then. A test with a shorter limit of its own says so with a timeout where it waits.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

LIMIT_S = 1100.0 if os.environ.get("CORRAL_EXAMPLES") == "search" else 600.0
"""Far longer than any test takes on a busy machine, and shorter than faulthandler_timeout."""
REPEAT_S = 5.0
PATIENCE_S = 120.0
"""How long tests wait for a condition or a program. A test that passes does not wait this long."""


@contextmanager
def limited(item: pytest.Item, phase: str) -> Iterator[None]:
    """Fail the test if the block takes longer than LIMIT_S."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"{item.nodeid}: the {phase} was still waiting after {LIMIT_S:g} s")

    if item.config.getoption("usepdb"):  # a test that is stopped in the debugger has no time limit
        yield
        return
    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the fixtures."""
    with limited(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the test itself."""
    with limited(item, "test"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the end of the fixtures."""
    with limited(item, "teardown"):
        return (yield)
