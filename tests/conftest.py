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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`pytest -n 2 --dist loadgroup` runs the tests of a file in one process, so that they share its servers.

    Files that must not run at the same time have the same `pytest.mark.xdist_group`.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
