"""corral job logs, and its short form corral logs: show the output of jobs."""

from __future__ import annotations

import sys
import threading
from typing import Annotated, BinaryIO

from cli.flags import option, switch
from cli.jobs.logs import LogSource, show
from cli.jobs.merge_node_logs import NodeLineWriter
from cli.jobs.selection import Job, select_one
from cli.output.details import job_details
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.api.jobs import JobView
from wire.http.client import Client, Refused, Unreachable
from wire.names import JobState, Reason

app = application()

EXAMPLES = examples(
    "corral job logs 7",
    "corral job logs -f last",
    "corral job logs --stderr 7_3",
    "corral job logs -n 20 7",
    "corral job logs --attempt 1 7",
    "corral job logs --node gpu02 7",
)


@app.command(epilog=EXAMPLES)
def logs(
    job: Job,
    follow: Annotated[
        bool, switch("--follow -f", "Show new output as the job writes it, until the job has ended.")
    ] = False,
    stdout: Annotated[bool, switch("--stdout", "Show only stdout.")] = False,
    stderr: Annotated[bool, switch("--stderr -e", "Show only stderr.")] = False,
    lines: Annotated[int | None, option("--lines -n", "N", "Show only the last N lines.", min=0)] = None,
    node: Annotated[
        str,
        option("--node", "NODE", "Show only the output from this node, for a job on several nodes."),
    ] = "",
    attempt: Annotated[
        int | None,
        option(
            "--attempt",
            "N",
            "Show the output of attempt N of the job. Attempt 1 is the first start of the job. Default: the"
            " last attempt.",
            min=1,
        ),
    ] = None,
) -> int:
    """Show the stdout and stderr of a job.

    Most jobs have one log, with stdout and stderr in the order in which the job wrote them. A job of 'corral
    run', or one submitted with --separate-output, has one log for stdout and one for stderr. Without -f the
    stdout log is shown first, then the stderr log. With -f the lines of both logs are shown as the job writes
    them. For a job on several nodes, each line begins with the name of its node.
    """
    from cli.jobs.wait import wait_until_started

    client = Client()
    found = select_one(client, job)
    if follow and not attempt and not found.attempt and not found.state.terminal:
        print_note(f"corral: {job_details.line_of(found)}; its output follows when it starts")
        wait_until_started(found.id)
    detail = client.job(found.id)
    found = detail.job
    streams = [name for name, chosen in (("stdout", stdout), ("stderr", stderr)) if chosen]
    if detail.spec.merge_output:
        if streams and not (stdout and stderr):
            print_note(
                f"corral: job {found.label} has one log for both stdout and stderr, which is shown here"
            )
        streams = ["stdout"]
    nodes = [held.node for held in found.held] if attempt in (None, found.attempt) and not node else [node]
    sources = [
        LogSource(found.id, stream, each if len(nodes) > 1 else node, attempt or 0)
        for each in nodes or [node]
        for stream in streams or ["stdout", "stderr"]
    ]
    counted = _Counted(sys.stdout.buffer)
    if follow and len(sources) > 1 and not found.state.terminal:
        _follow(sources, counted, lines, marked=len(nodes) > 1)
    else:
        _one_by_one(client, sources, counted, lines, follow=follow, marked=len(nodes) > 1)
    if lines != 0:
        ended = client.job(found.id).job if follow else found
        _explain_end(ended, attempt, written=counted.written > 0)
    return 0


class _Counted:
    """Output stream that passes all bytes on to the stream `sink`, and counts the bytes."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.written = 0
        self.last = b""

    def write(self, data: bytes) -> int:
        self.written += len(data)
        self.last = data[-1:] or self.last
        return self._sink.write(data)

    def flush(self) -> None:
        self._sink.flush()


class _Headed:
    """Output stream that passes all bytes on to the stream `sink`. If other output was written to `sink`
    before, a line with `heading` is written before the first bytes.
    """

    def __init__(self, heading: str, sink: _Counted) -> None:
        start = b"" if sink.last == b"\n" else b"\n"
        self._heading = start + f"==> {heading} <==\n".encode() if sink.written else b""
        self._sink = sink

    def write(self, data: bytes) -> int:
        if data and self._heading:
            self._sink.write(self._heading)
            self._heading = b""
        return self._sink.write(data)

    def flush(self) -> None:
        self._sink.flush()


def _one_by_one(
    client: Client, sources: list[LogSource], sink: _Counted, lines: int | None, *, follow: bool, marked: bool
) -> None:
    """Show the logs one after the other. If `marked` is true, each line begins with the name of its node. If
    `marked` is false, the job has one node, and a heading separates the stderr log from the stdout log above.
    """
    for source in sources:
        if marked:
            to_node = NodeLineWriter(source.node, sink)
            show(client, source, to_node, follow=follow, lines=lines)
            to_node.finish()
        else:
            show(client, source, _Headed(source.stream, sink), follow=follow, lines=lines)


def _follow(sources: list[LogSource], sink: _Counted, lines: int | None, *, marked: bool) -> None:
    """Show all logs at the same time. Show new lines as the job writes them, until the job has ended. If
    `marked` is true, each line begins with the name of its node.
    """
    failures: list[Exception] = []

    def one_of(source: LogSource) -> None:
        to = NodeLineWriter(source.node, sink) if marked else sink
        try:
            show(Client(), source, to, follow=True, lines=lines)
            if isinstance(to, NodeLineWriter):
                to.finish()
        except (Refused, Unreachable, OSError) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=one_of, args=(source,), daemon=True) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _explain_end(job: JobView, attempt: int | None, *, written: bool) -> None:
    """Print a note if the shown attempt of the job wrote no output (`written` is false). If the last attempt
    was shown and wrote output, but failed for another reason than the exit code of its program, print a note
    with the state of the job and the reason. `attempt` is None if the last attempt was shown.
    """
    if attempt not in (None, job.attempt):
        if not written:
            print_note(f"corral: attempt {attempt} of job {job.label} wrote nothing")
        return
    foreign = job.state is JobState.FAILED and job.reason is not Reason.EXIT_NONZERO
    if not written:
        ended = "" if job.state.terminal else " yet"
        print_note(f"corral: {job_details.line_of(job)}; it has written nothing{ended}")
    elif foreign:
        print_note(f"corral: {job_details.line_of(job)}")
