"""corral run: submit, stream, and end as the job ends."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, TextIO

import typer

from cli import exits, facts
from cli.asked import Asked, asking
from cli.commands import application, examples
from cli.exits import Mistake
from cli.follow import changes
from cli.gang import Marked
from cli.interrupts import Interrupted, Interrupts
from cli.jobs import spec_of
from cli.logs import copy
from cli.messages import note
from cli.output import Format
from cli.submit import JOB_SETTINGS, AsUser, DryRun, JobCommand, Key, Words, send, show
from wire.api.jobs import JobView
from wire.client import Client, Refused, Unreachable
from wire.words import JobState, Reason

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

    SIGUSR1 and SIGUSR2 are passed on to those of its processes that have a handler for them.

    Options are those of 'corral submit'.
    """
    spec = spec_of(asked, words, is_command=context.meta["is_command"])
    if spec.array is not None:
        raise Mistake("'corral run' follows one job, not an array", "Use: corral submit --array … --wait")
    if dry_run:
        show(spec, Format.TABLE)
        return 0
    client = Client()
    with Interrupts() as interrupts:
        submitted = send(client, spec, key, as_user)
        _forward(submitted.ids[0])
        return _attend(client, _Attendance(submitted.ids[0], quiet, interrupts))


def _forward(job: int) -> None:
    """SIGUSR1 and SIGUSR2 are for the job, which may have a handler for them."""

    def pass_on(number: int) -> None:
        try:
            Client().signal(job, signal.Signals(number).name)
        except (Refused, Unreachable) as failure:
            note(f"corral: {signal.Signals(number).name} does not reach job {job}: {failure}")

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: threading.Thread(target=pass_on, args=(number,)).start())


def _attend(client: Client, attendance: _Attendance) -> int:
    """Stay with the job to its end; the first signal cancels it, the second leaves."""
    job, code = attendance.job, None
    while True:
        try:
            ended = attendance.follow()
            return exits.of_job(ended) if code is None else code
        except Interrupted as interrupted:
            if code is not None:
                note(f"corral: job {job} is being cancelled without us")
                return code
            code = exits.BROKEN_PIPE if attendance.unread else 128 + interrupted.number
            note(f"corral: cancelling job {job}; once more to leave at once")
            with suppress(Refused):  # it has ended already
                client.cancel(job)


class _Attendance:
    """What has been shown of a job, and who is showing it."""

    def __init__(self, job: int, quiet: bool, interrupts: Interrupts) -> None:
        self.job = job
        self._quiet = quiet
        self._interrupts = interrupts
        self._told = ""
        self._attempt = 0
        self._readers: list[_Reader] = []

    @property
    def unread(self) -> bool:
        """Whether nobody reads our output any more."""
        return any(reader.unread for reader in self._readers)

    def follow(self) -> JobView:
        """Show everything the job writes, attempt after attempt, until it has ended."""
        views = changes([self.job])
        while True:
            with self._interrupts.heard():
                job = next(views)
            self._tell(job)
            if job.started_at is not None and job.attempt > self._attempt:
                self._finish()
                self._attempt = job.attempt
                self._readers = list(_readers(job))
            if job.state.terminal:
                self._finish()
                return job

    def _tell(self, job: JobView) -> None:
        line = facts.line_of(job)
        # What the program did itself its code says; anything else would be a riddle.
        foreign = job.state is JobState.FAILED and job.reason is not Reason.EXIT_NONZERO
        if (foreign or not self._quiet) and line != self._told:
            note(f"corral: {line}")
            self._told = line

    def _finish(self) -> None:
        with self._interrupts.heard():
            for reader in self._readers:
                reader.join()


def _readers(job: JobView) -> Iterator[_Reader]:
    """Of a job on several nodes every line comes with its node."""
    nodes = [held.node for held in job.held]
    for node in nodes if len(nodes) > 1 else [""]:
        yield _Reader(job.id, "stdout", sys.stdout, node)
        yield _Reader(job.id, "stderr", sys.stderr, node)


class _Reader(threading.Thread):
    """Copies one output of a job to one of ours."""

    def __init__(self, job: int, stream: str, sink: TextIO, node: str) -> None:
        super().__init__(daemon=True)
        self.unread = False
        self._what = (job, stream, Marked(node, sink.buffer) if node else sink.buffer)
        self._node = node
        self.start()

    def run(self) -> None:
        job, stream, sink = self._what
        try:
            copy(Client(), job, stream, sink, follow=True, quiet=True, node=self._node)
            if isinstance(sink, Marked):
                sink.finish()
        except BrokenPipeError:
            self.unread = True
            # The main thread waits for news of the job and would not notice.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        except (Refused, Unreachable) as failure:
            note(f"corral: {stream} of job {job} cannot be shown: {failure}")
