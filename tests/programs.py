"""Starts programs of Corral in a tenth of the time, by a fork of a process that has imported all modules.

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
from cli.slurm.programs import PROGRAMS, run_and_exit
from controller.sim import parallel
from tests.limits import PATIENCE_S

_PREPARED = multiprocessing.get_context("forkserver")
_PREPARED.set_forkserver_preload(
    [
        "controller.api.server.app",
        "controller.config",
        "controller.daemon",
        "controller.nodes.local",
        "controller.registry",
        "controller.sim.run",
        "controller.store.store",
        "cli.main",
        *(module.partition(":")[0] for module, _ in (*COMMANDS.values(), *PROGRAMS.values())),
        "wire.http.client",
        "tests.programs",
    ]
)


def prepare_simulations() -> None:
    """Start the processes of simulations in this process from the prepared process, too."""
    parallel._SPAWN = _PREPARED  # type: ignore[assignment]


class Program:
    """A running program with the methods of subprocess.Popen that tests need."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._process = _PREPARED.Process(
            target=_become, args=(tuple(words), str(log), _own_environment()), daemon=True
        )
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """The exit code of the program, minus the signal that ended it, or None while it runs."""
        return self._process.exitcode

    def wait(self, patience_s: float) -> int:
        """Wait for the exit code of the program."""
        self._process.join(patience_s)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("program", patience_s)
        return code

    def send(self, number: int) -> None:
        """Send a signal to the program if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _own_environment() -> dict[str, str]:
    """The environment of this process, which a test may have changed after the fork server began."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}


def _become(words: tuple[str, ...], log: str, environment: dict[str, str]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    _redirect(os.devnull, log, log)
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
    done = _run(("cli", *words), command, wanted, place, "")
    if check:
        done.check_returncode()
    return done


def run_slurm(
    *words: str, environment: Mapping[str, str], place: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands to its end as subprocess.run does."""
    assert words[0] in PROGRAMS
    return _run(words, list(words), dict(environment), place, stdin)


def _run(
    words: tuple[str, ...], command: list[str], wanted: dict[str, str], place: Path | str | None, stdin: str
) -> subprocess.CompletedProcess[str]:
    """Run these words in a prepared process; or the command, where a prepared process would differ."""
    same = _of_the_interpreter(wanted) == _of_the_interpreter(os.environ)
    if not same or threading.current_thread() is not threading.main_thread():
        # because the interpreter reads these variables when it starts, and because two threads that wait for
        # processes of multiprocessing take each other's exit codes
        return subprocess.run(
            command,
            cwd=place,
            env=wanted,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    with tempfile.TemporaryDirectory() as folder:
        given, out, err = Path(folder, "in"), Path(folder, "out"), Path(folder, "err")
        given.write_text(stdin)
        os.umask(umask := os.umask(0o077))
        files = (str(given), str(out), str(err))
        arguments = (words, wanted, str(place or os.getcwd()), umask, files)
        process = _PREPARED.Process(target=_run_command, args=arguments)
        process.start()
        process.join(PATIENCE_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, PATIENCE_S, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(
            command, code, out.read_bytes().decode(), err.read_bytes().decode()
        )


def _of_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    known = ("PYTHON", "LC_", "LANG")
    return {name: value for name, value in environment.items() if name.startswith(known)}


def _run_command(
    words: Sequence[str], environment: dict[str, str], place: str, umask: int, files: tuple[str, str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(place)
    os.umask(umask)
    # This process has no threads, and no files that its simulations must not have.
    parallel._SPAWN = multiprocessing.get_context("fork")  # type: ignore[assignment]
    _redirect(*files)
    sys.argv = [*words]
    if words[0] in PROGRAMS:
        run_and_exit(words[0])
    runpy.run_module("cli", run_name="__main__", alter_sys=True)


def _redirect(given: str, out: str, err: str) -> None:
    """stdin is read from the first file; stdout and stderr are appended to the others."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptors = (os.open(given, os.O_RDONLY), os.open(out, flags, 0o600), os.open(err, flags, 0o600))
    for target, source in enumerate(descriptors):
        os.dup2(source, target)
        os.close(source)
    # because multiprocessing has replaced it by an empty file
    sys.stdin = os.fdopen(0, closefd=False)
