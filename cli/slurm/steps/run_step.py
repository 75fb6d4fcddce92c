"""Runs the tasks of a job step, on this node and on other nodes, and collects their output and exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any

from cli.slurm.arguments import Arguments
from cli.slurm.programs import SlurmError
from cli.slurm.steps.layout import Task
from cli.slurm.steps.links import RemoteCommand, StepLink, TaskEnd
from cli.slurm.steps.pmi import PmiServer
from cli.slurm.steps.task_gpus import OF_THE_NODE, GpuSlice, choose_gpus, remote_words
from cli.slurm.steps.task_output import TaskOutput
from cli.slurm.steps.task_use import tree_use
from wire.job.output_files import expand_patterns
from wire.job.steps import Step

_READ = 1 << 15
_FIRST_SAMPLE_S, _SAMPLE_S = 1.0, 10.0
"""The usage of the tasks on this node is measured _FIRST_SAMPLE_S seconds after their start, and then every
_SAMPLE_S seconds.
"""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class TaskCommand:
    """A task with its command, its environment variables and its GPUs. If `gpus` is None, the task gets all
    GPUs of the job on its node.
    """

    task: Task
    words: list[str]
    variables: Mapping[str, str]
    gpus: GpuSlice | None = None


@dataclass
class _Ends:
    """How the ended tasks of the step have ended. `ends` is a dict from rank to TaskEnd, and `changed` is
    notified when a task ends.
    """

    ends: dict[int, TaskEnd] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, rank: int, end: TaskEnd) -> None:
        with self.changed:
            self.ends[rank] = end
            self.changed.notify_all()


class StepTasks:
    """Runs the tasks of one step.

    1. Start each task: on this node as a child process, which is in the job's control group already; on
       another node by the StepLink.
    2. Copy the output to stdout and stderr or to files, with labels if --label is set. Pass the messages of
       PMI to the PmiServer of the step.
    3. With --kill-on-bad-exit, end all tasks when one task fails. With --wait=N, end the tasks that still run
       N seconds after the first task has ended.
    4. Return the highest exit code of the tasks, where signal N counts as 128 + N. `ended` returns the step
       with the CPU time and memory that the tasks have used.
    """

    def __init__(
        self,
        step: Step,
        job: str,
        node: str,
        link: StepLink,
        arguments: Arguments,
        environment: Mapping[str, str],
    ) -> None:
        self._job = job
        self._recorded = step
        self._step = f"{job}.{step.number}"
        self._node = node
        self._link = link
        self._arguments = arguments
        self._environment = environment
        self._directory = os.path.abspath(arguments.last("chdir") or os.curdir)
        self._ends = _Ends()
        self._local: dict[int, subprocess.Popen[bytes]] = {}
        self._nodes: dict[int, str] = {}
        self._remote: set[int] = set()
        self._output = TaskOutput(arguments, self._directory, environment, self._step)
        self._killed = False
        self._pmi: PmiServer | None = None
        self._pmi_sockets: dict[int, socket.socket] = {}

    def run(self, commands: list[TaskCommand], node_counts: list[int], *, pmi: bool) -> int:
        """Run the tasks, and return their highest exit code. `node_counts` is the number of tasks on each
        node. With `pmi`, the tasks get a socket for PMI.
        """
        threads = []
        self._nodes = {command.task.rank: command.task.node for command in commands}
        if pmi:
            self._pmi = PmiServer(self._step, node_counts, self._write_pmi, self._aborted)
        with self._signals():
            for command in commands:
                start = self._start_local if command.task.node == self._node else self._start_remote
                threads += start(command, len(commands), self._output.sinks(command.task))
            self._await_all(len(commands))
            for thread in threads:
                thread.join()
        self._output.close()
        return max(128 - end.code if end.code < 0 else end.code for end in self._ends.ends.values())

    def ended(self) -> Step:
        """Return the step with its end time, exit code, signal and usage. As in Slurm, the step has the
        highest exit code of its tasks. It has a signal only if all exit codes are 0.
        """
        ends = self._ends.ends
        code, number = max((max(end.code, 0), max(-end.code, 0)) for end in ends.values())
        largest = max(ends, key=lambda rank: (ends[rank].max_rss_kib, -rank))
        return replace(
            self._recorded,
            ended_at=time.time(),
            code=min(code, 255),
            signal=0 if code else number,
            cpu_s=round(sum(end.cpu_s for end in ends.values()), 3),
            max_rss_kib=ends[largest].max_rss_kib,
            max_rss_node=self._nodes[largest],
            max_rss_task=largest,
        )

    def _await_all(self, count: int) -> None:
        wait_s = float(self._arguments.last("wait") or 0)
        bad = self._arguments.has("kill-on-bad-exit") and self._arguments.last("kill-on-bad-exit") != "0"
        deadline, sample_at = None, time.monotonic() + _FIRST_SAMPLE_S
        with self._ends.changed:
            while len(self._ends.ends) < count:
                if time.monotonic() >= sample_at and self._local:
                    sample_at = time.monotonic() + _SAMPLE_S
                    self._link.update(self._used_so_far())
                if bad and any(end.code for end in self._ends.ends.values()):
                    self._kill("a task has failed")
                if wait_s and self._ends.ends and deadline is None:
                    deadline = time.monotonic() + wait_s
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._kill("the first task ended and --wait is over")
                    left = None
                # Wake up every second, because Python does not handle signals while it waits.
                self._ends.changed.wait(min(1.0, left) if left is not None else 1.0)

    def _used_so_far(self) -> Step:
        """Return the step with the CPU time and memory that its tasks on this node have used until now."""
        used = {
            rank: tree_use(process.pid) for rank, process in self._local.items() if process.returncode is None
        }
        ended = {rank: (end.cpu_s, end.max_rss_kib) for rank, end in self._ends.ends.items()}
        used = {**used, **ended}
        largest = max(used, key=lambda rank: (used[rank][1], -rank), default=0)
        return replace(
            self._recorded,
            cpu_s=round(sum(cpu_s for cpu_s, _ in used.values()), 3),
            max_rss_kib=used[largest][1] if used else 0,
            max_rss_node=self._nodes[largest],
            max_rss_task=largest,
        )

    # --- tasks on this node ---

    def _start_local(
        self, command: TaskCommand, count: int, sinks: tuple[Callable[[bytes], None] | None, ...]
    ) -> list[threading.Thread]:
        variables = dict(command.variables)
        choose_gpus(variables, command.gpus)
        task = command.task
        ours, theirs = self._pmi_socket(task.rank)
        if theirs is not None:
            variables["PMI_FD"] = str(theirs.fileno())
        try:
            process = subprocess.Popen(
                command.words,
                executable=_program(command.words[0], variables),
                cwd=self._directory,
                env=variables,
                stdin=self._input(task, count),
                stdout=None if sinks[0] is None else subprocess.PIPE,
                stderr=None if sinks[1] is None else subprocess.PIPE,
                pass_fds=() if theirs is None else (theirs.fileno(),),
            )
        except OSError as error:
            self._say(task, f"{command.words[0]}: {error.strerror}", "error: ")
            self._ends.add(task.rank, TaskEnd(2))
            return []
        finally:
            if theirs is not None:
                theirs.close()
        self._local[task.rank] = process
        if ours is not None:
            _started(self._read_pmi, task.rank, ours, daemon=True)
        pairs = [(process.stdout, sinks[0]), (process.stderr, sinks[1])]
        copies = [_started(_copy, pipe, sink) for pipe, sink in pairs if pipe is not None]

        def wait() -> None:
            for each in copies:
                each.join()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            used = usage.ru_utime + usage.ru_stime
            self._ended(task, TaskEnd(process.returncode, "", used, usage.ru_maxrss))

        return [_started(wait)]

    def _input(self, task: Task, count: int) -> Any:
        wanted = self._arguments.last("input")
        if wanted and wanted not in ("all", "none") and not wanted.isdigit():
            try:
                return open(expand_patterns(wanted, self._output.values(task)), "rb")
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
        task = command.task
        variables = {name: value for name, value in command.variables.items() if name not in OF_THE_NODE}
        words = remote_words(self._directory, command.gpus, command.words)

        def output(stream: str, data: bytes) -> None:
            if stream == "pmi":
                if self._pmi is not None:
                    self._pmi.take(task.rank, data)
                return
            error = stream == "stderr"
            sink = sinks[int(error)] or self._output.plain(sys.stderr if error else sys.stdout)
            sink(data)

        def end(how: TaskEnd) -> None:
            for sink in sinks:
                if sink is not None:
                    sink(b"")
            if how.error and not self._killed:
                self._say(task, how.error, "error: ")
            self._ended(task, how)

        self._remote.add(task.rank)
        remote = RemoteCommand(words, variables, self._pmi is not None)
        self._link.open(task.rank, task.node, remote, output, end)
        given = self._input(task, count)
        if given != subprocess.DEVNULL:
            source = 0 if given is None else given.fileno()
            _started(_feed, self._link, task.rank, source, given, daemon=True)
        return []

    # --- messages of PMI ---

    def _pmi_socket(self, rank: int) -> tuple[socket.socket | None, socket.socket | None]:
        if self._pmi is None:
            return None, None
        ours, theirs = socket.socketpair()
        self._pmi_sockets[rank] = ours
        return ours, theirs

    def _read_pmi(self, rank: int, ours: socket.socket) -> None:
        with suppress(OSError):
            while data := ours.recv(_READ):
                assert self._pmi is not None
                self._pmi.take(rank, data)

    def _write_pmi(self, rank: int, data: bytes) -> None:
        if rank in self._remote:
            self._link.write(rank, data, pmi=True)
            return
        with suppress(OSError, KeyError):
            self._pmi_sockets[rank].sendall(data)

    def _aborted(self, rank: int, code: int) -> None:
        self._kill(f"task {rank} has called MPI_Abort with {code}")

    # --- ends of tasks, messages to the user, and signals ---

    def _ended(self, task: Task, end: TaskEnd) -> None:
        if end.code < 0 and not self._killed:
            self._say(task, signal.strsignal(-end.code) or f"signal {-end.code}", "error: ")
        elif end.code > 0 and not self._killed and not end.error:
            self._say(task, f"Exited with exit code {end.code}", "error: ")
        self._ends.add(task.rank, end)

    def _say(self, task: Task, sentence: str, kind: str = "") -> None:
        print(f"srun: {kind}{task.node}: task {task.rank}: {sentence}", file=sys.stderr, flush=True)

    def cancel(self) -> None:
        """End srun's tasks and print Slurm's message, because a user has cancelled the step."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        node = next(iter(self._nodes.values()), self._node)
        print(
            f"srun: error: *** STEP {self._step} ON {node} CANCELLED AT {now} ***",
            file=sys.stderr,
            flush=True,
        )
        self._pass_on(signal.SIGKILL)

    def _kill(self, why: str) -> None:
        if self._killed:
            return
        self._killed = True
        print(f"srun: Terminating StepId={self._step}: {why}", file=sys.stderr, flush=True)
        self._pass_on(signal.SIGTERM)
        timer = threading.Timer(5.0, self._pass_on, [signal.SIGKILL])
        timer.daemon = True
        timer.start()

    def _pass_on(self, number: int) -> None:
        """Send a signal to all tasks that still run."""
        for process in self._local.values():
            # Read `returncode` instead of calling poll(), because poll() would take the exit status away from
            # the thread that waits for the process.
            with suppress(OSError):
                if process.returncode is None:
                    os.kill(process.pid, number)
        if self._remote - self._ends.ends.keys():
            self._link.signal(number)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Context manager that sends the signals in _FORWARDED to the tasks when srun receives them."""
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


def _feed(link: StepLink, rank: int, source: int, file: Any) -> None:
    """Send the bytes from the file descriptor `source` to the stdin of a task on another node, until the end
    of the file. Then close `file`, the open file of this descriptor, unless it is None.
    """
    with suppress(OSError):
        while data := os.read(source, _READ):
            link.write(rank, data)
        link.write(rank, b"", end=True)
    if file is not None:
        file.close()


def _program(word: str, variables: Mapping[str, str]) -> str:
    return shutil.which(word, path=variables.get("PATH", os.defpath)) or word
