"""The settings of pytest for every test: a time limit, and signals for the processes that a test starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CONFTEST = """\
from tests import limits
from tests.limits import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown

limits.LIMIT_S, limits.REPEAT_S = 0.5, 0.5
"""
WAITS = {
    "subprocess": "import subprocess; subprocess.run(['sleep', '3600'])",
    "thread": "import threading; threading.Event().wait()",
    "queue": "import queue; queue.Queue().get()",
    "loop": "\n    while True: pass",
    "asyncio": "import asyncio; asyncio.run(asyncio.Event().wait())",
    "pipe": "import os; os.read(os.pipe()[0], 1)",
}


def test_hanging_tests_fail_and_the_next_ones_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_waits.py").write_text(
        "".join(
            f"def test_{name}():\n    {wait}\n\ndef test_after_{name}():\n    pass\n\n"
            for name, wait in WAITS.items()
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "test_waits.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    for name in WAITS:
        assert f"test_waits.py::test_{name}: the test was still waiting after 0.5 s" in done.stdout
    assert f"{len(WAITS)} failed, {len(WAITS)} passed" in done.stdout


def test_a_program_of_a_test_gets_signals_that_the_shell_ignores(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import tests.conftest\n")
    (tmp_path / "test_signals.py").write_text(
        "import signal, subprocess\n"
        "def test_signals():\n"
        "    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):\n"
        "        with subprocess.Popen(['sleep', '60']) as child:\n"
        "            child.send_signal(number)\n"
        "            assert child.wait(30) == -number\n"
    )
    words = ["-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "test_signals.py"]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT HUP TERM; exec "$0" "$@"', sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 passed" in done.stdout, done.stdout
