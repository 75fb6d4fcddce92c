"""Settings for all tests."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadScopeScheduling

from tests import programs
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


def pytest_configure() -> None:
    # Collection makes many objects and deletes few of them, so the garbage collector would find nothing.
    gc.disable()
    programs.prepare_simulations()


ROOT = Path(__file__).parents[1]
_SHARED = re.compile(r'scope="(?:class|module|package|session)"')
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
LONG_FILES = (
    "tests/clients/",
    "tests/controller/api/",
    "tests/controller/core/test_determinism.py",
    "tests/test_",
)
"""Files whose tests together take many seconds. They begin early too, so that the last files are short."""

LONG_GROUPS = (
    "tests/cli/slurm/submit/",
    "tests/integration/commands/test_documents.py",
    "tests/integration/nodes/test_network.py",
)
"""Files whose tests run one after the other and wait a lot. They begin in the first half of the run."""


TOGETHER = {
    "tests/agent/isolation/test_docker.py": "containers",
    "tests/agent/isolation/test_podman.py": "containers",
    "tests/integration/nodes/test_containers.py": "containers",
}
"""Files that must not run at the same time, with the name of their group: podman and dockerd share locks,
cgroups and mounts of the host."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Divide the compilation of the test modules among the processes, each of which imports all of them.

    pytest rewrites the assertions of a test module when it compiles the module, which takes much longer than
    to import it. In a new clone no module is compiled yet, and processes that import the modules in the same
    order would all compile each of them. So each process begins with a share of its own.
    """
    given = getattr(session.config, "workerinput", None)
    if given is None or sys.dont_write_bytecode:
        return
    named = [
        Path(session.config.invocation_params.dir, each.partition("::")[0]) for each in session.config.args
    ]
    files = [
        file for each in named for file in (sorted(each.rglob("test_*.py")) if each.is_dir() else [each])
    ]
    for file in files[int(given["workerid"][2:]) :: given["workercount"]]:
        # Collection reports what is wrong with a module, or that it is skipped.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow tests first, so that no process is still busy when the others have ended. Files that compute
    alternate with files that wait, so that both cores are busy.
    """
    if len(items) > 1_000:  # a part of the tests keeps its order
        files = list(dict.fromkeys(_file(item.nodeid) for item in items))
        place = {}
        for folders, part in ((COMPUTES, 1.0), (WAITS, 1.0), (LONG_FILES, 1.0), (LONG_GROUPS, 0.5)):
            found = [file for file in files if file.startswith(folders)]
            place.update((file, part * number / len(found)) for number, file in enumerate(found))
        items.sort(key=lambda item: place.get(_file(item.nodeid), 1.0))


class Groups(LoadScopeScheduling):
    """Gives the tests of a group to one process, which runs them one after the other.

    1. Files that must not run at the same time are one group.
    2. A slow test that shares nothing with other tests is a group of its own: any free process may run it.
    3. The other tests of a file are a group, so that they share its servers, and because one order for a
       whole file costs less than one for each test.

    The groups come from the names of tests. The mark xdist_group has no effect: xdist 3.8 appends it to a
    field that pytest 9.2 no longer reads.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = _file(nodeid)
        if file in TOGETHER:
            return TOGETHER[file]
        return nodeid if file.startswith(COMPUTES + WAITS) and not _shares_fixtures(file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups | None:
    return Groups(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at 8,000 tests, which stay to the end, again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@functools.cache
def _shares_fixtures(file: str) -> bool:
    """Whether the file, or a conftest.py beside or above it, has a fixture that several tests share."""
    path = ROOT / file
    texts = [
        path,
        *(folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT / "tests")),
    ]
    return any(_SHARED.search(each.read_text(encoding="utf-8")) for each in texts if each.exists())
