"""Writes the output of the tasks of a step to the streams of srun or to files, with labels if --label is
set.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

from cli.slurm.arguments import Arguments
from cli.slurm.programs import SlurmError
from cli.slurm.steps.layout import Task
from wire.job.output_files import PATTERNS, expand_patterns, is_per_task


class TaskOutput:
    """Writes the output of one step, such as 7.0, as srun's options --output, --error and --label set."""

    def __init__(
        self, arguments: Arguments, directory: str, environment: Mapping[str, str], step: str
    ) -> None:
        self._arguments = arguments
        self._directory = directory
        self._environment = environment
        self._step = step
        self._files: dict[str, IO[bytes]] = {}
        self._write = threading.Lock()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def sinks(self, task: Task) -> tuple[Callable[[bytes], None] | None, Callable[[bytes], None] | None]:
        """Return two functions that write the stdout and the stderr of a task. None means that the output of
        the task goes unchanged to the same stream of srun.
        """
        out, err = self._arguments.last("output"), self._arguments.last("error")
        return (
            self._sink(task, out, sys.stdout),
            self._sink(task, err or out, sys.stderr),
        )

    def _sink(self, task: Task, pattern: str, stream: Any) -> Callable[[bytes], None] | None:
        label = f"{task.rank}: ".encode() if self._arguments.has("label") else b""
        if not pattern or pattern == "all":
            return self._labelled(self.plain(stream), label) if label else None
        if pattern.isdigit() and int(pattern) != task.rank:
            return lambda _: None
        if pattern == "none":
            return lambda _: None
        try:
            path = os.path.join(self._directory, expand_patterns(pattern, self.values(task)))
        except KeyError as unknown:
            known = ", ".join(f"%{letter}" for letter in PATTERNS)
            raise SlurmError(
                f"{pattern!r} has %{unknown.args[0]}, which is no pattern; write {known}"
            ) from None
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

    def plain(self, stream: Any) -> Callable[[bytes], None]:
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

    def values(self, task: Task) -> dict[str, str]:
        job, _, number = self._step.rpartition(".")
        known = self._environment
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
