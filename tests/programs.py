"""Programs of Corral in a tenth of the time: forked from a process that has imported everything already.

The program's `__main__` runs in a new process, session and environment. A test that starts a controller
sixty times does not import it sixty times, and neither do the tests that run a corral command.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.registry import COMMANDS
from tests.limits import PATIENCE_S

_PREPARED = multiprocessing.get_context("forkserver")
_PREPARED.set_forkserver_preload(
    [
        "controller.api.server.app",
        "controller.config",
        "controller.daemon",
        "controller.nodes.local",
        "controller.registry",
        "controller.store.store",
        "cli.main",
        *(module.partition(":")[0] for module, _ in COMMANDS.values()),
        "wire.http.client",
        "tests.programs",
    ]
)


class Program:
    """A running program with the methods of subprocess.Popen that tests need."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._process = _PREPARED.Process(target=_become, args=(tuple(words), str(log)), daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit code, minus the signal that ended it, or None while it runs."""
        return self._process.exitcode

    def wait(self, patience_s: float) -> int:
        """Its exit code, once it has one."""
        self._process.join(patience_s)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("program", patience_s)
        return code

    def send(self, number: int) -> None:
        """Signal it, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _become(words: tuple[str, ...], log: str) -> None:
    os.setsid()
    for name in [name for name in os.environ if name.startswith("CORRAL_")]:
        del os.environ[name]
    _redirect(log, log)
    sys.argv = [*words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def run_corral(
    *words: str,
    environment: Mapping[str, str] | None = None,
    place: Path | str | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a corral command to its end as subprocess.run does. Its stdin is empty."""
    wanted = dict(os.environ if environment is None else environment)
    command = [sys.executable, "-P", "-m", "cli", *words]
    same = _of_the_interpreter(wanted) == _of_the_interpreter(os.environ)
    if not same or threading.current_thread() is not threading.main_thread():
        # because the interpreter reads these variables when it starts, and because two threads that wait for
        # processes of multiprocessing take each other's exit codes
        return subprocess.run(
            command,
            cwd=place,
            env=wanted,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=check,
        )
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        os.umask(umask := os.umask(0o077))
        arguments = (words, wanted, str(place or os.getcwd()), umask, str(out), str(err))
        process = _PREPARED.Process(target=_run_command, args=arguments)
        process.start()
        process.join(PATIENCE_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, PATIENCE_S, out.read_bytes(), err.read_bytes())
        done = subprocess.CompletedProcess(
            command, code, out.read_bytes().decode(), err.read_bytes().decode()
        )
    if check:
        done.check_returncode()
    return done


def _of_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    known = ("PYTHON", "LC_", "LANG")
    return {name: value for name, value in environment.items() if name.startswith(known)}


def _run_command(
    words: Sequence[str], environment: dict[str, str], place: str, umask: int, out: str, err: str
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(place)
    os.umask(umask)
    _redirect(out, err)
    sys.argv = ["cli", *words]
    runpy.run_module("cli", run_name="__main__", alter_sys=True)


def _redirect(out: str, err: str) -> None:
    """stdin is empty; stdout and stderr are appended to these files."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = (os.open(os.devnull, os.O_RDONLY), os.open(out, flags, 0o600), os.open(err, flags, 0o600))
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
