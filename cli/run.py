"""corral run: submit, stream, and end as the job ends."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated, TextIO

import typer

from cli import exits, facts
from cli.asked import Asked, asking
from cli.commands import application, examples
from cli.exits import Mistake
from cli.follow import changes
from cli.jobs import spec_of
from cli.logs import copy
from cli.messages import note
from cli.output import Format
from cli.submit import JOB_SETTINGS, AsUser, DryRun, JobCommand, Key, Words, show
from wire.api import JobView
from wire.client import Client, Refused, Unreachable

app = application()


@app.command(
    cls=JobCommand,
    context_settings=JOB_SETTINGS,
    epilog=examples(
        "corral run --gpus 1 -- nvidia-smi",
        "corral run --gpus 8 --time 2h train.sh --epochs 3",
        "corral run --quiet -- hostname",
    ),
)
@asking
def run(
    context: typer.Context,
    asked: Asked,
    words: Words = [],  # noqa: B006 - never changed
    as_user: AsUser = "",
    key: Key = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the job's own output.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Submit a job, show its output live, and exit with its code. Ctrl-C cancels the job.

    Options are those of 'corral submit'.
    """
    spec = spec_of(asked, words, is_command=context.meta["is_command"])
    if spec.array is not None:
        raise Mistake("'corral run' follows one job, not an array", "Use: corral submit --array … --wait")
    if dry_run:
        show(spec, Format.TABLE)
        return 0
    client = Client()
    with _stoppable():
        submitted = client.submit(spec, key=key, as_user=as_user)
        return _attend(client, submitted.ids[0], quiet)


def _attend(client: Client, job: int, quiet: bool) -> int:
    """Stay with the job to its end; the first signal cancels it, the second leaves."""
    attendance = _Attendance(job, quiet)
    code = None
    while True:
        try:
            ended = attendance.follow()
            return exits.of_job(ended) if code is None else code
        except _Stopped as stopped:
            if code is not None:
                note(f"corral: job {job} is being cancelled without us")
                return code
            code = exits.BROKEN_PIPE if attendance.unread else 128 + stopped.number
            note(f"corral: cancelling job {job}; once more to leave at once")
            with suppress(Refused):  # it has ended already
                client.cancel(job)


class _Attendance:
    """What has been shown of a job, and who is showing it."""

    def __init__(self, job: int, quiet: bool) -> None:
        self._job = job
        self._quiet = quiet
        self._told = ""
        self._attempt = 0
        self._readers: list[_Reader] = []

    @property
    def unread(self) -> bool:
        """Whether nobody reads our output any more."""
        return any(reader.unread for reader in self._readers)

    def follow(self) -> JobView:
        """Show everything the job writes, attempt after attempt, until it has ended."""
        for job in changes([self._job]):
            self._tell(facts.line_of(job))
            if job.started_at is not None and job.attempt > self._attempt:
                self._attempt = job.attempt
                self._finish()
                self._readers = [_Reader(job.id, "stdout", sys.stdout), _Reader(job.id, "stderr", sys.stderr)]
            if job.state.terminal:
                self._finish()
                return job
        raise AssertionError("changes() goes on until the job has ended")

    def _tell(self, line: str) -> None:
        if not self._quiet and line != self._told:
            note(f"corral: {line}")
            self._told = line

    def _finish(self) -> None:
        for reader in self._readers:
            reader.join()


class _Reader(threading.Thread):
    """Copies one output of a job to one of ours."""

    def __init__(self, job: int, stream: str, sink: TextIO) -> None:
        super().__init__(daemon=True)
        self.unread = False
        self._what = (job, stream, sink.buffer)
        self.start()

    def run(self) -> None:
        job, stream, sink = self._what
        try:
            copy(Client(), job, stream, sink, follow=True)
        except BrokenPipeError:
            self.unread = True
            # The main thread waits for news of the job and would not notice.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        except (Refused, Unreachable) as failure:
            note(f"corral: {stream} of job {job} cannot be shown: {failure}")


class _Stopped(Exception):
    """A signal asks us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C, a closed terminal and SIGTERM arrive as one exception."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise _Stopped(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup, say
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
