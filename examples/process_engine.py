"""An execution engine in a plain file: it runs each job as a process on the controller's machine.

Name the file in scheduler.toml, and make an engine of this type:

    [plugins]
    files = ["process_engine.py"]

    [engines.here]
    type = "process"
    cpus = 4
    memory_mib = 8192

Jobs with `--engine here` then run on the node here-local. The engine type is a frozen dataclass with the
method `connect`. Its fields are the options of [engines.here].

Each foreign job has a directory with the name of its tag. A shell, the wrapper, makes the file `pid` before
it starts the job, and writes the file `exit` when the job has ended. The shell makes `pid` only if the file
does not exist, so two calls of ask() with one tag start one process. All facts about jobs are in files, so
a new controller finds all jobs.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineScope,
    ExecutionEngine,
    ForeignJob,
    ForeignNode,
    ForeignState,
    Outcome,
    Seen,
    Task,
)
from wire.agent.reports import NodeFacts

WRAPPER = """cd "$0" || exit 1
set -C; echo $$ > pid || exit 0; set +C
exec > stdout; if [ "$1" = merged ]; then exec 2>&1; else exec 2> stderr; fi; shift
setsid "$@" < /dev/null & child=$!
echo $child > child
wait $child; echo $? > exit.new
mv exit.new exit
"""


@dataclass(frozen=True, slots=True)
class ProcessEngineType:
    """The options of the engine: the resources of its only node."""

    name: ClassVar[str] = "process"

    cpus: int = 1
    memory_mib: int = 1_024

    def connect(self, scope: EngineScope) -> ProcessEngine:
        return ProcessEngine(self, scope)


class ProcessEngine(ExecutionEngine):
    """Runs foreign jobs as processes. The name of a foreign job is its tag."""

    caps = EngineCaps(logs=True)

    def __init__(self, options: ProcessEngineType, scope: EngineScope) -> None:
        self._facts = NodeFacts(options.cpus * 1_000, options.memory_mib)
        self._jobs = Path(scope.directory) / "jobs"
        self._prefix = scope.tag_prefix
        self._terminated: set[str] = set()

    async def look(self) -> Seen:
        found = sorted(self._jobs.glob(f"{self._prefix}*")) if self._jobs.is_dir() else []
        jobs = tuple(ForeignJob(each.name, each.name, self._state(each)) for each in found)
        return Seen(True, jobs, (ForeignNode("local", self._facts),))

    async def ask(self, task: Task, tag: str, *, again: bool) -> str:
        try:
            user = pwd.getpwnam(task.order.user)
        except KeyError:
            raise AskRefused(f"there is no user {task.order.user!r} on this machine", lasting=True) from None
        if os.geteuid() not in (0, user.pw_uid):
            raise AskRefused(f"this controller cannot run jobs of {task.order.user}", lasting=True)
        directory = self._jobs / tag
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        env = {"PATH": os.defpath, "HOME": user.pw_dir, **task.order.env}
        output = "merged" if task.order.merge_output else "apart"
        shell = ("/bin/sh", "-c", WRAPPER, str(directory), output, *self._command(task))
        await asyncio.create_subprocess_exec(*shell, env=env, start_new_session=True)
        return tag

    async def end(self, ref: str, grace_s: float) -> None:
        # Corral repeats the end when the grace is over: the second signal is SIGKILL.
        number = signal.SIGKILL if ref in self._terminated else signal.SIGTERM
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.killpg(int((self._jobs / ref / "child").read_text()), number)
            self._terminated.add(ref)

    async def proof(self, ref: str, tag: str) -> Outcome | None:
        try:
            code = int((self._jobs / ref / "exit").read_text())
        except FileNotFoundError:
            return None
        return Outcome(signal=code - 128) if code > 128 else Outcome(code=code)

    async def forget(self, ref: str, tag: str) -> None:
        self._terminated.discard(ref)
        shutil.rmtree(self._jobs / ref, ignore_errors=True)

    async def logs(self, ref: str, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        at, last = 0, False
        while not last:
            last = not follow or self._state(self._jobs / ref) is ForeignState.ENDED
            with suppress(FileNotFoundError), (self._jobs / ref / stream).open("rb") as file:
                file.seek(at)
                while piece := file.read(1 << 18):
                    at += len(piece)
                    yield piece
            await asyncio.sleep(0 if last else 0.2)

    def script(self, task: Task, tag: str) -> str:
        return "\n".join((WRAPPER.rstrip(), " ".join(self._command(task))))

    def _command(self, task: Task) -> tuple[str, ...]:
        order = task.order
        become = ("setpriv", f"--reuid={order.user}", "--init-groups") if os.geteuid() == 0 else ()
        group = (f"--regid={pwd.getpwnam(order.user).pw_gid}",) if become else ()
        return (*become, *group, "env", "-C", order.workdir or "/", "--", *order.command)

    def _state(self, directory: Path) -> ForeignState:
        """Return ENDED if the wrapper has written the exit code, or has ended."""
        if (directory / "exit").exists():
            return ForeignState.ENDED
        try:
            words = Path(f"/proc/{int((directory / 'pid').read_text())}/cmdline").read_bytes()
        except (FileNotFoundError, ValueError):
            return ForeignState.WAITING if not (directory / "child").exists() else ForeignState.ENDED
        return ForeignState.RUNNING if str(directory).encode() in words else ForeignState.ENDED
