"""Runs the command of `corral run --pty` in a terminal, as the only command of a new job.

1. The job itself runs a shell, the keeper, which creates a named pipe and reads an exit code from this pipe
   (`_KEEPER`).
2. When the job runs, this module starts a shell in the job, as `corral exec` does, with a terminal. The shell
   opens the pipe, runs the command, and writes the exit code of the command to the pipe (`_WRAPPER`).
3. The keeper exits with this code 0.3 s later. So the job has the exit code of the command. If the shell is
   killed or the client is lost, the pipe is closed without a code, and the keeper exits with code 129.

If the command is not started within five minutes, the keeper also exits with code 129.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from cli import exit_codes
from cli.exit_codes import CommandError
from cli.jobs import exec_terminal
from cli.jobs.wait import changes, wait_until_ended
from cli.output.details import job_details
from cli.output.stderr import print_note
from cli.signals import DeferredSignals, SignalReceived
from wire.api.jobs import JobView
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import JobState

_PIPE = 'd="${TMPDIR:-/tmp}/corral-run-$CORRAL_JOB_ID.$CORRAL_ATTEMPT"; '
_KEEPER = (
    _PIPE + 'mkdir -m 700 "$d" && mkfifo "$d/code" || exit 1; '
    '(sleep 300; [ -e "$d/client" ] || : > "$d/code") & '
    'code=; read -r code < "$d/code"; kill $! 2>/dev/null; rm -rf "$d"; sleep 0.3; exit "${code:-129}"'
)
_WRAPPER = (
    _PIPE + 'until [ -p "$d/code" ]; do sleep 0.05; done; exec 9> "$d/code"; : > "$d/client"; '
    '"$@" 9>&-; code=$?; echo "$code" >&9; exit "$code"'
)


def keeper_spec(spec: JobSpec) -> JobSpec:
    """Return the JobSpec of the job that holds the resources for the command. This job runs once, on the
    first node.
    """
    several = spec.nodes is not None and spec.nodes > 1
    once = Restart(RestartWhen.NEVER)
    return replace(spec, command=("/bin/sh", "-c", _KEEPER), restart=once, batch=several or spec.batch)


def await_start(job: int, interrupts: DeferredSignals) -> JobView:
    """Wait until the job runs or has ended, and print its states. If a signal interrupts the wait, cancel the
    job and raise SignalReceived.
    """
    views, last = changes([job]), ""
    while True:
        try:
            with interrupts.interruptible():
                view = next(views)
        except SignalReceived:
            _cancel(job)
            raise
        line = job_details.line_of(view)
        if line != last:
            print_note(f"corral: {line}")
            last = line
        if view.state is JobState.RUNNING or view.state.terminal:
            return view


def run_in_terminal(job: int, command: tuple[str, ...]) -> int:
    """Run the command in a terminal in the running job. Return its exit code when the job has ended."""
    try:
        exec_terminal.run(job, ("/bin/sh", "-c", _WRAPPER, "sh", *command), "", terminal=True)
    except CommandError:
        _cancel(job)
        raise
    # Use the exit code of the job and not of the terminal session, because the job may have ended the shell
    # of the session.
    [ended] = wait_until_ended([job])
    return exit_codes.of_job(ended)


def _cancel(job: int) -> None:
    # Ignore a refusal, because the job may have ended already.
    with suppress(Refused, Unreachable):
        Client().cancel(job)
