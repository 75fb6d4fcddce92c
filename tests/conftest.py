"""Settings for all tests."""

from __future__ import annotations

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


COMPUTES = ("tests/simulation/", "tests/property/")
"""Folders of slow tests that need a core for themselves."""
WAITS = ("tests/integration/", "tests/controller/nodes/", "tests/controller/questions/")
"""Folders of slow tests that mostly wait for processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`pytest -n 4 --dist loadgroup` runs the tests of a file in one process, so that they share its servers.

    Slow files come first, so that no process is still busy when the others have ended. Files that compute
    alternate with files that wait, so that both cores are busy. Files that must not run at the same time have
    the same `pytest.mark.xdist_group`.
    """
    if len(items) > 1_000:  # a part of the tests keeps its order
        files = list(dict.fromkeys(item.nodeid.partition("::")[0] for item in items))
        place = {}
        for folders in (COMPUTES, WAITS):
            found = [file for file in files if file.startswith(folders)]
            place.update((file, number / len(found)) for number, file in enumerate(found))
        items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], 1.0))
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
