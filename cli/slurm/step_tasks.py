"""Runs the tasks of a job step, on this node and on other nodes, and collects their output and exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from cli.slurm.arguments import Arguments
from cli.slurm.programs import SlurmError
from cli.slurm.step_layout import Task
from wire.job.output_files import expand_patterns, is_per_task

_REMOTE = (
    'cd "$1" || exit 1; range=$2; shift 2; '
    'if [ "$range" = none ]; then export CUDA_VISIBLE_DEVICES=; elif [ -n "$range" ]; then '
    'CUDA_VISIBLE_DEVICES=$(printf %s "$CUDA_VISIBLE_DEVICES" | cut -d, -f "$range"); '
    'export CUDA_VISIBLE_DEVICES; fi; exec /usr/bin/env "$@"'
)
_OF_THE_NODE = frozenset(
    (
        *("CUDA_VISIBLE_DEVICES", "CORRAL_SPOOL", "CORRAL_MARK", "CORRAL_NODE", "CORRAL_NODE_RANK"),
        *("NODE_RANK", "CORRAL_SCRATCH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME"),
    )
)
"""Variables that the agent of another node sets for its tasks."""
_READ = 1 << 15
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class TaskCommand:
    """A task with its command, its variables, and its part of the node's GPUs (first, last)."""

    task: Task
    words: list[str]
    variables: Mapping[str, str]
    gpus: tuple[int, int] | None = None


@dataclass
class _Ends:
    """How the tasks have ended so far: the exit code by rank."""

    codes: dict[int, int] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, rank: int, code: int) -> None:
        with self.changed:
            self.codes[rank] = code
            self.changed.notify_all()


class StepTasks:
    """Runs the tasks of one step.

    1. Start each task: on this node as a child process, which is in the job's control group already; on
       another node by a `corral exec` session through the controller.
    2. Copy the output to stdout and stderr or to files, with labels if --label is set.
    3. When a task fails and --kill-on-bad-exit is set, or --wait seconds after the first end, end the others.
    4. Return the highest exit code, 128 + N for signal N.
    """

    def __init__(
        self, job: str, step: str, node: str, arguments: Arguments, environment: Mapping[str, str]
    ) -> None:
        self._job = job
        self._step = step
        self._node = node
        self._arguments = arguments
        self._environment = environment
        self._directory = os.path.abspath(arguments.last("chdir") or os.curdir)
        self._ends = _Ends()
        self._local: dict[int, subprocess.Popen[bytes]] = {}
        self._remote: dict[int, Any] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._write = threading.Lock()
        self._killed = False

    def run(self, commands: list[TaskCommand]) -> int:
        threads = []
        with self._signals():
            for command in commands:
                start = self._start_local if command.task.node == self._node else self._start_remote
                threads += start(command, len(commands), self._sinks(command.task))
            self._await_all(len(commands))
            for thread in threads:
                thread.join()
        for file in self._files.values():
            file.close()
        return max(self._ends.codes.values())

    def _await_all(self, count: int) -> None:
        wait_s = float(self._arguments.last("wait") or 0)
        bad = self._arguments.has("kill-on-bad-exit") and self._arguments.last("kill-on-bad-exit") != "0"
        deadline = None
        with self._ends.changed:
            while len(self._ends.codes) < count:
                if bad and any(self._ends.codes.values()):
                    self._kill("a task has failed")
                if wait_s and self._ends.codes and deadline is None:
                    deadline = time.monotonic() + wait_s
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._kill("the first task ended and --wait is over")
                    left = None
                # Wake up now and then, because Python handles signals only between instructions.
                self._ends.changed.wait(min(1.0, left) if left is not None else 1.0)

    # --- tasks on this node ---

    def _start_local(
        self, command: TaskCommand, count: int, sinks: tuple[Callable[[bytes], None] | None, ...]
    ) -> list[threading.Thread]:
        variables = dict(command.variables)
        if command.gpus is not None:
            first, last = command.gpus
            known = [gpu for gpu in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(known[first - 1 : last] if first else [])
        task = command.task
        try:
            process = subprocess.Popen(
                command.words,
                executable=_program(command.words[0], variables),
                cwd=self._directory,
                env=variables,
                stdin=self._input(task, count),
                stdout=None if sinks[0] is None else subprocess.PIPE,
                stderr=None if sinks[1] is None else subprocess.PIPE,
            )
        except OSError as error:
            self._say(task, f"{command.words[0]}: {error.strerror}", "error: ")
            self._ends.add(task.rank, 2)
            return []
        self._local[task.rank] = process
        pairs = [(process.stdout, sinks[0]), (process.stderr, sinks[1])]
        copies = [_started(_copy, pipe, sink) for pipe, sink in pairs if pipe is not None]

        def wait() -> None:
            for each in copies:
                each.join()
            self._ended(task, process.wait())

        return [_started(wait)]

    def _input(self, task: Task, count: int) -> Any:
        wanted = self._arguments.last("input")
        if wanted and wanted not in ("all", "none") and not wanted.isdigit():
            try:
                return open(expand_patterns(wanted, self._values(task)), "rb")
            except OSError as error:
                raise SlurmError(f"Could not open stdin file: {error.strerror}") from None
        alone = (
            count == 1 or (wanted.isdigit() and int(wanted) == task.rank) or (not wanted and not task.rank)
        )
        return None if alone and wanted != "none" else subprocess.DEVNULL

    # --- tasks on other nodes ---

    def _start_remote(
        self, command: TaskCommand, count: int, sinks: tuple[Callable[[bytes], None] | None, ...]
    ) -> list[threading.Thread]:
        return [_started(self._run_remote, command, count, sinks)]

    def _run_remote(
        self, command: TaskCommand, count: int, sinks: tuple[Callable[[bytes], None] | None, ...]
    ) -> None:
        from wire.api.jobs import ShellRequest
        from wire.http.client import Client, Refused, Unreachable

        task = command.task
        variables = [
            f"{name}={value}" for name, value in command.variables.items() if name not in _OF_THE_NODE
        ]
        gpus = (
            ""
            if command.gpus is None
            else "none"
            if command.gpus == (0, 0)
            else "{}-{}".format(*command.gpus)
        )
        words = ("/bin/sh", "-c", _REMOTE, "srun", self._directory, gpus, *variables, *command.words)
        try:
            with Client() as client:
                self._remote[task.rank] = client
                shell = client.open_shell(self._job, ShellRequest(words, node=task.node))
                if self._input(task, count) is None:
                    _started(_feed, shell, daemon=True)
                for said in client.read_shell(shell):
                    if not said.end:
                        error = said.stream == "stderr"
                        sink = sinks[int(error)] or self._plain(sys.stderr if error else sys.stdout)
                        sink(b64decode(said.data))
                        continue
                    if said.error and not self._killed:
                        self._say(task, said.error, "error: ")
                    code = -said.signal if said.signal else 1 if said.code is None else said.code
                    self._ended(task, code)
                    return
            self._ended(task, 1)
        except (Refused, Unreachable, OSError) as error:
            if self._killed:
                self._ended(task, -signal.SIGKILL)
                return
            hint = (
                "" if isinstance(error, Refused) else ": srun starts tasks on other nodes by the controller"
            )
            self._say(task, f"{error}{hint}", "error: ")
            self._ends.add(task.rank, 1)

    # --- output, ends and signals ---

    def _sinks(self, task: Task) -> tuple[Callable[[bytes], None] | None, Callable[[bytes], None] | None]:
        """Return the functions that take stdout and stderr of a task; None for the stream of srun itself."""
        out, err = self._arguments.last("output"), self._arguments.last("error")
        return (
            self._sink(task, out, sys.stdout),
            self._sink(task, err or out, sys.stderr),
        )

    def _sink(self, task: Task, pattern: str, stream: Any) -> Callable[[bytes], None] | None:
        label = f"{task.rank}: ".encode() if self._arguments.has("label") else b""
        if not pattern or pattern == "all":
            return self._labelled(self._plain(stream), label) if label else None
        if pattern.isdigit() and int(pattern) != task.rank:
            return lambda _: None
        if pattern == "none":
            return lambda _: None
        path = os.path.join(self._directory, expand_patterns(pattern, self._values(task)))
        if path not in self._files:
            append = self._arguments.last("open-mode").startswith("a")
            try:
                self._files[path] = open(path, "ab" if append else "wb", buffering=0)  # noqa: SIM115 - see run
            except OSError as error:
                raise SlurmError(f"Could not open stdout file {path}: {error.strerror}") from None
        file = self._files[path]

        def write(data: bytes) -> None:
            with self._write:
                file.write(data)

        shared = not is_per_task(pattern)
        return self._labelled(write, label) if label and shared else write

    def _plain(self, stream: Any) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            with self._write, suppress(BrokenPipeError):
                stream.buffer.write(data)
                stream.buffer.flush()

        return write

    @staticmethod
    def _labelled(write: Callable[[bytes], None], label: bytes) -> Callable[[bytes], None]:
        rest = b""

        def add(data: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                write(b"".join(label + line + b"\n" for line in lines))
            if not data and rest:
                write(label + rest + b"\n")
                rest = b""

        return add

    def _values(self, task: Task) -> dict[str, str]:
        job, known = self._job, self._environment
        number = self._step.rpartition(".")[2]
        return {
            "j": job,
            "J": self._step,
            "A": known.get("SLURM_ARRAY_JOB_ID", job),
            "a": known.get("SLURM_ARRAY_TASK_ID", "4294967294"),
            "x": self._arguments.last("job-name") or known.get("SLURM_JOB_NAME", ""),
            "N": task.node,
            "n": str(task.node_rank),
            "t": str(task.rank),
            "s": number,
            "u": known.get("USER", ""),
        }

    def _ended(self, task: Task, code: int) -> None:
        if code < 0 and not self._killed:
            self._say(task, signal.strsignal(-code) or f"signal {-code}", "error: ")
        elif code > 0 and not self._killed:
            self._say(task, f"Exited with exit code {code}", "error: ")
        self._ends.add(task.rank, 128 - code if code < 0 else code)

    def _say(self, task: Task, sentence: str, kind: str = "") -> None:
        print(f"srun: {kind}{task.node}: task {task.rank}: {sentence}", file=sys.stderr, flush=True)

    def _kill(self, why: str) -> None:
        if self._killed:
            return
        self._killed = True
        print(f"srun: Terminating StepId={self._step}: {why}", file=sys.stderr, flush=True)
        self._pass_on(signal.SIGTERM)
        threading.Timer(5.0, self._pass_on, [signal.SIGKILL]).start()

    def _pass_on(self, number: int) -> None:
        """Send a signal to the tasks on this node. End the sessions of tasks on other nodes, because
        sessions have no signals; the agent then ends these tasks.
        """
        for process in self._local.values():
            with suppress(OSError):
                if process.poll() is None:
                    process.send_signal(number)
        for rank, client in list(self._remote.items()):
            if rank not in self._ends.codes:
                self._killed = True
                client.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Context manager that passes signals for srun on to the tasks."""
        handler: Any = lambda number, _: self._pass_on(number)  # noqa: E731
        before = {number: signal.signal(number, handler) for number in _FORWARDED}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def _started(act: Callable[..., None], *given: Any, daemon: bool = False) -> threading.Thread:
    thread = threading.Thread(target=act, args=given, daemon=daemon)
    thread.start()
    return thread


def _copy(pipe: IO[bytes], sink: Callable[[bytes], None]) -> None:
    while data := os.read(pipe.fileno(), _READ):
        sink(data)
    sink(b"")
    pipe.close()


def _feed(shell: str) -> None:
    """Send the stdin of srun to a task on another node until the stdin or the task ends."""
    from wire.api.jobs import ShellGiven
    from wire.http.client import Client, Refused, Unreachable

    with suppress(Refused, Unreachable, OSError), Client() as client:
        while data := os.read(0, _READ):
            client.write_shell(shell, ShellGiven(b64encode(data).decode()))
        client.write_shell(shell, ShellGiven(end=True))


def _program(word: str, variables: Mapping[str, str]) -> str:
    return shutil.which(word, path=variables.get("PATH", os.defpath)) or word
