"""corral demo: runs about forty jobs on four simulated 8-GPU hosts, and then removes its files."""

from __future__ import annotations

import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Annotated

from cli import exit_codes
from cli.commands.service.web import check_installed
from cli.demo import operator, summary
from cli.demo.cluster import Cluster
from cli.demo.jobs import PARTS, Part, extra_jobs
from cli.exit_codes import CommandError
from cli.flags import switch
from cli.jobs.selection import ACTIVE, pages
from cli.output.formats import write
from cli.output.stderr import print_error, print_note
from cli.registry import application, examples
from cli.signals import DeferredSignals, SignalReceived
from wire.api.jobs import JobView
from wire.http.client import Client, Refused, Unreachable
from wire.names import JobState
from wire.program_parts import COMMAND_LINE
from wire.text import printable

NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
ALL_ENDED_S = 90.0
TUI_END_S = 5.0
STRETCH, CROWD = 6.0, 24
"""With the terminal UI, the run times of jobs are multiplied by STRETCH, and a new job is submitted whenever
fewer than CROWD jobs are active.
"""

RESET = "\x1b[?1049l\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m"

app = application()


@app.command(epilog=examples("corral demo", "corral demo --no-tui", "corral demo --web"))
def demo(
    no_tui: Annotated[
        bool, switch("--no-tui", "Show progress and a summary instead of the terminal UI.")
    ] = False,
    web: Annotated[
        bool, switch("--web", "Show the terminal UI in a web browser: print a link, and run until Ctrl-C.")
    ] = False,
) -> int:
    """Run a demo cluster: a controller, four simulated 8-GPU hosts, and about forty jobs of five users.

    All files are in a temporary directory, and all processes end with the demo. On a terminal the demo opens
    the terminal UI; without a terminal it ends after less than a minute.
    """
    if web and no_tui:
        raise CommandError("--web and --no-tui exclude each other", "Leave one of them out.")
    if web:
        check_installed()
        words: tuple[str, ...] | None = ("web", "--write", "--port", "0")
    else:
        words = ("tui",) if not no_tui and sys.stdin.isatty() and sys.stdout.isatty() else None
    try:
        with DeferredSignals() as interrupts, Cluster(interrupts, NODES) as cluster:
            _print_line(f"Starting a controller and {len(NODES)} simulated hosts in {cluster.place}")
            cluster.await_ready()
            _print_line(f"{', '.join(NODES)} are up, with 8 GPUs each.")
            try:
                return _watch(cluster, interrupts, words) if words else _report(cluster, interrupts)
            except Unreachable:
                cluster.check()  # If the controller has ended, raise an error that gives the reason.
                raise
    except SignalReceived as interrupted:
        # Ignore an OSError, because the terminal may be closed.
        with suppress(OSError):
            print_note("corral: the demo has ended, and its files are removed")
        return 128 + interrupted.number


def _report(cluster: Cluster, interrupts: DeferredSignals) -> int:
    """Run the jobs, and print progress and a summary. Return 0 if every job ended as expected."""
    began = time.monotonic()
    with cluster.client() as client:
        expected = submit_all(cluster, client)
        while True:
            jobs = list(pages(client))
            _cancel_forgotten(client, jobs, expected)
            _print_line(_progress(jobs, time.monotonic() - began))
            if all(job.state.terminal for job in jobs):
                break
            if time.monotonic() - began > ALL_ENDED_S:
                raise CommandError(
                    f"not all jobs have ended within {ALL_ENDED_S:g} s", code=exit_codes.FAILED
                )
            cluster.check()
            interrupts.nap(1.0)
    summary.show(jobs, time.monotonic() - began)
    wrong = [job for job in jobs if job.state is not expected[job.id]]
    for job in wrong:
        print_error(f"{job.label} {job.name}: {job.state.value} ({job.detail}), not {expected[job.id].value}")
    return exit_codes.FAILED if wrong else 0


def _watch(cluster: Cluster, interrupts: DeferredSignals, words: Sequence[str]) -> int:
    """Run the corral command `words`, which shows the terminal UI, until the command ends. Submit new jobs
    meanwhile to keep the cluster busy. Return the exit code of the command.
    """
    more = extra_jobs()
    with cluster.client() as client, _terminal() if words[0] == "tui" else nullcontext():
        operator.break_gpu(client, cluster.workdir, STRETCH)
        submit_all(cluster, client, STRETCH)
        operator.set_policies(client, NODES)
        tui = subprocess.Popen(
            COMMAND_LINE.command(*words),
            # Use a separate state directory, because the demo must not read or change the user's saved
            # filters.
            env={**cluster.environment(), "CORRAL_URL": cluster.url, "XDG_STATE_HOME": cluster.workdir},
        )
        try:
            while tui.poll() is None:
                cluster.check([tui.pid])
                if client.jobs(states=ACTIVE, limit=1).total < CROWD:
                    part = next(more)
                    # Continue if the controller refuses the job, because the user may have drained all nodes.
                    with suppress(Refused):
                        client.submit(part.spec(cluster.workdir, STRETCH), as_user=part.user)
                interrupts.nap(0.5)
        finally:
            _end(tui)
    return tui.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(TUI_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def submit_all(cluster: Cluster, client: Client, stretch: float = 1.0) -> Mapping[int, JobState]:
    """Submit all jobs, with their run times multiplied by `stretch`. Return the state in which each job
    should end, by job id.
    """
    expected: dict[int, JobState] = {}
    for part in PARTS:
        try:
            submitted = client.submit(part.spec(cluster.workdir, stretch), as_user=part.user)
        except Refused as refused:
            if part.ends is not None:
                raise
            _print_line(
                f"{part.user:<5} {part.name}: refused at once, as expected: {refused.problem.message}"
            )
            continue
        if part.ends is None:
            raise CommandError(
                f"the controller accepted job {part.name}, but it should have refused the job",
                code=exit_codes.FAILED,
            )
        expected.update(dict.fromkeys(submitted.ids, part.ends))
        _print_line(f"{part.user:<5} {part.name}: {_request_text(part)}, job {submitted.label}")
    return expected


def _cancel_forgotten(client: Client, jobs: list[JobView], expected: Mapping[int, JobState]) -> None:
    for job in jobs:
        if expected[job.id] is JobState.CANCELLED and job.state is JobState.RUNNING:
            # Ignore a refusal, because the job may be cancelled already.
            with suppress(Refused):
                client.cancel(job.id)


def _request_text(part: Part) -> str:
    number, what = (part.gpus, "GPU") if part.gpus else (part.cpus, "CPU")
    gpus = f"{number:g} {what}{'s' * (number > 1)}"
    nodes = f" on {part.nodes} nodes" if part.nodes else ""
    return gpus + nodes + (f" each, array {part.array}" if part.array else "")


def _progress(jobs: list[JobView], seconds: float) -> str:
    count = Counter(job.state for job in jobs)
    used = sum(job.gpus for job in jobs if job.state is JobState.RUNNING)
    counts = ", ".join(f"{count[state]} {state.value.lower()}" for state in JobState if count[state])
    return f"{seconds:3.0f} s  {used:4g} of {8 * len(NODES)} GPUs busy  {counts}"


def _print_line(line: str) -> None:
    write(printable(line, 500) + "\n")
    sys.stdout.flush()


@contextmanager
def _terminal() -> Iterator[None]:
    """Context manager that restores the terminal settings at the end, even after a failure of the terminal
    UI.
    """
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):
            write(RESET)
            sys.stdout.flush()
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
