"""corral run: submits a job, shows its output, and exits with its code."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import stat
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, TextIO

import typer

from cli import exit_codes
from cli.commands.submit import JOB_SETTINGS, AsUser, DryRun, JobCommand, Key, Words, previewed, send, show
from cli.exit_codes import CommandError
from cli.flags import switch, with_flag_groups
from cli.jobs import terminal_run
from cli.jobs.exec_terminal import is_terminal
from cli.jobs.logs import LogSource, copy
from cli.jobs.merge_node_logs import NodeLineWriter
from cli.jobs.wait import changes
from cli.output.details import job_details
from cli.output.formats import Format
from cli.output.stderr import print_note
from cli.registry import application, examples
from cli.signals import DeferredSignals, SignalReceived
from cli.spec.spec_builder import spec_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submitter_environment import submitter
from wire.api.jobs import JobView
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

app = application()


@app.command(
    cls=JobCommand,
    context_settings=JOB_SETTINGS,
    epilog=examples(
        "corral run --gpus 1 -- nvidia-smi",
        "corral run --gpus 8 --time 2h train.sh --epochs 3",
        "corral run --quiet -- hostname",
        "corral run --pty --gpus 1 --time 2h -- bash",
    ),
)
@with_flag_groups
def run(
    context: typer.Context,
    options: SubmitOptions,
    words: Words = [],  # noqa: B006 - never changed
    as_user: AsUser = "",
    key: Key = "",
    quiet: Annotated[bool, switch("--quiet -q", "Show only the output of the job.")] = False,
    pty: Annotated[
        bool,
        switch("--pty", "Connect the job's command with this terminal. The job ends with the command."),
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Submit a job, show its output live, and exit with the job's exit code. Ctrl-C cancels the job.

    corral passes SIGUSR1 and SIGUSR2 on to the processes of the job that have a handler for the signal. The
    stdin of the job is empty, because a second attempt of the job could not read the same input again. With
    --pty the command is connected with this terminal, runs on the first node, and is started only once.
    Ctrl-C then goes to the command. If stdin is not a terminal, --pty is refused.

    The options are those of 'corral submit'.
    """
    spec = spec_of(options, words, is_command=context.meta["is_command"], submitter=submitter())
    # Use separate logs for stdout and stderr of the job, so that this command can write them to its own
    # stdout and stderr.
    spec = replace(spec, merge_output=False)
    if spec.array is not None:
        raise CommandError(
            "'corral run' follows one job, not an array", "Use: corral submit --array … --wait"
        )
    if pty and not is_terminal(0):
        raise CommandError(
            "--pty needs a terminal, but the stdin of this command is not a terminal",
            "Leave out --pty, or run the command in a terminal. To give input to a running job: "
            "… | corral exec JOB -- COMMAND",
        )
    if dry_run:
        show(previewed(spec, as_user), Format.TABLE)
        return 0
    client = Client()
    if pty:
        return _run_with_terminal(client, spec, key, as_user)
    with DeferredSignals() as interrupts:
        submitted = send(client, spec, key, as_user)
        if _has_unread_input() and not quiet:
            label = submitted.label
            print_note(
                f"corral: job {label} does not get the input of this command: the stdin of a job is empty. "
                f"Let the job read a file, or pipe into the running job: … | corral exec {label} -- COMMAND"
            )
        _forward(submitted.ids[0])
        return _show_until_end(client, _JobOutput(submitted.ids[0], quiet, interrupts))


def _run_with_terminal(client: Client, spec: JobSpec, key: str, as_user: str) -> int:
    with DeferredSignals() as interrupts:
        job = send(client, terminal_run.keeper_spec(spec), key, as_user).ids[0]
        try:
            view = terminal_run.await_start(job, interrupts)
        except SignalReceived as interrupted:
            return 128 + interrupted.number
    if view.state.terminal:
        return exit_codes.of_job(view)
    # From this point on, a signal ends this process. The connection to the controller is then closed, and the
    # agent ends the job's command.
    return terminal_run.run_in_terminal(job, spec.command)


def _has_unread_input(descriptor: int = 0) -> bool:
    """Return True if the file descriptor is a pipe, socket or file that has data now; False for a terminal or
    an empty pipe. Descriptor 0 is stdin.
    """
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            count = array.array("i", [0])
            fcntl.ioctl(descriptor, termios.FIONREAD, count)
            return count[0] > 0
    except OSError:  # The stdin of this command is closed.
        pass
    return False


def _forward(job: int) -> None:
    """Make this process send each SIGUSR1 and SIGUSR2 that it receives to the job."""

    def pass_on(number: int) -> None:
        try:
            Client().signal(job, signal.Signals(number).name)
        except (Refused, Unreachable) as failure:
            print_note(f"corral: {signal.Signals(number).name} does not reach job {job}: {failure}")

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: threading.Thread(target=pass_on, args=(number,)).start())


def _show_until_end(client: Client, output: _JobOutput) -> int:
    """Show the output until the job ends. The first Ctrl-C cancels the job; the second ends this command at
    once.
    """
    job, code = output.job, None
    while True:
        try:
            ended = output.follow()
            return exit_codes.of_job(ended) if code is None else code
        except SignalReceived as interrupted:
            if code is not None:
                print_note(f"corral: job {job} is being cancelled; this command ends now")
                return code
            code = exit_codes.BROKEN_PIPE if output.is_broken else 128 + interrupted.number
            print_note(f"corral: cancelling job {job}; press Ctrl-C again to leave at once")
            # Ignore a refusal, because the job may have ended already.
            with suppress(Refused):
                client.cancel(job)


class _JobOutput:
    """Shows the output of one job. `is_broken` becomes true when the program that reads stdout or stderr of
    this process has closed the pipe.
    """

    def __init__(self, job: int, quiet: bool, interrupts: DeferredSignals) -> None:
        self.job = job
        self._quiet = quiet
        self._interrupts = interrupts
        self._last_line = ""
        self._attempt = 0
        self._readers: list[_Reader] = []

    @property
    def is_broken(self) -> bool:
        return any(reader.is_broken for reader in self._readers)

    def follow(self) -> JobView:
        """Show the output of each attempt of the job. Return the job after its end."""
        views = changes([self.job])
        while True:
            with self._interrupts.interruptible():
                job = next(views)
            self._print_state(job)
            if job.started_at is not None and job.attempt > self._attempt:
                self._finish()
                self._attempt = job.attempt
                self._readers = list(_readers(job))
            if job.state.terminal:
                self._finish()
                return job

    def _print_state(self, job: JobView) -> None:
        line = job_details.line_of(job)
        # If the job's program failed, print no reason, because this command exits with the exit code of that
        # program.
        foreign = job.state is JobState.FAILED and job.reason is not Reason.EXIT_NONZERO
        if (foreign or not self._quiet) and line != self._last_line:
            print_note(f"corral: {line}")
            self._last_line = line

    def _finish(self) -> None:
        with self._interrupts.interruptible():
            for reader in self._readers:
                reader.join()


def _readers(job: JobView) -> Iterator[_Reader]:
    """Yield two threads for each node of the job: one shows stdout, the other stderr. For a job on several
    nodes, lines begin with the node's name.
    """
    nodes = [held.node for held in job.held]
    for node in nodes if len(nodes) > 1 else [""]:
        yield _Reader(job.id, "stdout", sys.stdout, node)
        yield _Reader(job.id, "stderr", sys.stderr, node)


class _Reader(threading.Thread):
    """Thread that copies stdout or stderr of the job to stdout or stderr of this command."""

    def __init__(self, job: int, stream: str, sink: TextIO, node: str) -> None:
        super().__init__(daemon=True)
        self.is_broken = False
        self._source = LogSource(job, stream, node)
        self._sink = NodeLineWriter(node, sink.buffer) if node else sink.buffer
        self.start()

    def run(self) -> None:
        try:
            copy(Client(), self._source, self._sink, follow=True, quiet=True)
            if isinstance(self._sink, NodeLineWriter):
                self._sink.finish()
        except BrokenPipeError:
            self.is_broken = True
            # The program that reads the output has closed the pipe. Interrupt the main thread with a signal,
            # because the main thread waits for the job and does not write to the pipe.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        except (Refused, Unreachable) as failure:
            print_note(f"corral: {self._source.stream} of job {self._source.job} cannot be shown: {failure}")
