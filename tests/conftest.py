"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.limits import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown

# A shell without job control starts `pytest &` with SIGINT ignored, nohup with SIGHUP. A program started by a
# test would inherit that and ignore the signal, too. exec resets a handler, but not an ignored signal.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda _number, _frame: None)

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]

# The same examples in every run, so that a failure comes from the change. CORRAL_EXAMPLES=search tries
# others. No deadline, because a busy machine is slow.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
EXAMPLES = os.environ.get("CORRAL_EXAMPLES", "steady")
settings.load_profile(EXAMPLES)

if EXAMPLES == "steady":
    # Numbers and words that stand in modules imported so far are examples too, as Hypothesis has it: which
    # tests ran before would decide what this one tries. Derandomizing does not keep that out.
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` renews the outcomes in tests/stories."""
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite the outcomes of the scheduling stories in tests/stories",
    )


COMPUTES = ("tests/simulation/", "tests/property/", "tests/tui/", "tests/benchmarks/")
"""Folders of slow tests that need a core for themselves."""
WAITS = (
    "tests/integration/",
    "tests/controller/nodes/",
    "tests/controller/questions/",
    "tests/agent/",
    "tests/oracle/",
)
"""Folders of slow tests that mostly wait for processes."""


@pytest.hookimpl(tryfirst=True)  # because xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, the tests of a group run one after the other in one process.

    1. Slow tests come first, so that no process is still busy when the others have ended. Files that compute
       alternate with files that wait, so that both cores are busy.
    2. The tests of a file are a group, so that they share its servers, and because one order for a whole file
       costs less than one for each test.
    3. A slow test that shares nothing with other tests has no group: any free process may run it.
    4. Files that must not run at the same time have the same `pytest.mark.xdist_group`.
    """
    if len(items) > 1_000:  # a part of the tests keeps its order
        files = list(dict.fromkeys(_file(item) for item in items))
        place = {}
        for folders in (COMPUTES, WAITS):
            found = [file for file in files if file.startswith(folders)]
            place.update((file, number / len(found)) for number, file in enumerate(found))
        items.sort(key=lambda item: place.get(_file(item), 1.0))
    for item in items:
        alone = item.nodeid.startswith(COMPUTES + WAITS) and not _shares_fixtures(item)
        if not alone and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_file(item)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at 6,600 tests, which stay to the end, again and again."""
    gc.collect()
    gc.freeze()


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _shares_fixtures(item: pytest.Item) -> bool:
    """Whether the test uses a fixture that is made once for all tests of its module."""
    return isinstance(item, pytest.Function) and any(
        fixture.scope != "function" and fixture.baseid.startswith("tests")
        for fixtures in item._fixtureinfo.name2fixturedefs.values()
        for fixture in fixtures
    )
