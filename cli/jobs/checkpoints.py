"""Lists and deletes the checkpoints of a job. For a running job, commands run in its allocation. For any
other job, a small job runs the commands on the node of the last attempt.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass

from cli.exit_codes import FAILED, CommandError
from cli.jobs.wait import wait_until_ended
from cli.output.formats import Column, Table
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from wire.api.jobs import JobDetail, ShellRequest
from wire.http.client import Client
from wire.job.placement.affinity import parse_term
from wire.job.spec import JobSpec
from wire.names import JobState
from wire.text import memory, printable

SMALL_JOB_LIMIT_S = 600.0
"""The time limit, in seconds, of the small job that lists or deletes checkpoints of a job without a running
attempt.
"""
_ENTER = 'cd "${1:-$CORRAL_CHECKPOINT_DIR}" && shift || exit 1; '
_LIST = _ENTER + (
    'for each in *; do [ -e "$each" ] || continue; '
    'printf "%s %s %s\\n" "$(stat -c %Y -- "$each")" "$(du -sb -- "$each" | cut -f1)" "$each"; done'
)
_DELETE = _ENTER + 'rm -rf -- "$@"'


@dataclass(frozen=True)
class CheckpointFile:
    """A file or directory in the checkpoint directory of a job: its name, its size in bytes, and its time in
    seconds since 1970. `resumes` is True for the checkpoint with which the next attempt would begin.
    """

    name: str
    bytes: int
    at: float
    resumes: bool


def list_checkpoints(client: Client, job: JobDetail) -> list[CheckpointFile]:
    """Return the checkpoints in the directory of a job, the newest first."""
    newest = "" if job.checkpoint is None else job.checkpoint.path.rsplit("/", 1)[-1]
    found = []
    for line in _run(client, job, _LIST).splitlines():
        at, size, name = line.split(" ", 2)
        found.append(CheckpointFile(name, int(size), float(at), name == newest))
    return sorted(found, key=lambda each: (-each.at, each.name))


def delete_checkpoints(client: Client, job: JobDetail, names: list[str]) -> None:
    """Delete checkpoints of a job. Raise CommandError if a name is not in the directory, or if the next
    attempt would begin with the checkpoint of this name.
    """
    known = {each.name: each for each in list_checkpoints(client, job)}
    for name in names:
        if name not in known:
            raise CommandError(
                f"there is no checkpoint {name!r} of job {job.job.label}",
                f"'corral job checkpoints {job.job.label}' lists them.",
            )
        if known[name].resumes and not job.job.state.terminal:
            raise CommandError(
                f"the next attempt of job {job.job.label} would begin with checkpoint {name!r}",
                "Let the job save a newer one first: corral job checkpoint.",
            )
    _run(client, job, _DELETE, *names)


def checkpoint_table() -> Table[CheckpointFile]:
    return Table(
        [
            Column("NAME", lambda each: each.name, narrow=12),
            Column("SIZE", lambda each: memory(-(-each.bytes >> 20)), right=True),
            Column("SAVED", lambda each: clock(each.at)),
            Column("RESUMES", lambda each: "yes" if each.resumes else ""),
        ],
        name=lambda each: each.name,
        kind=CheckpointFile,
    )


def _run(client: Client, job: JobDetail, script: str, *words: str) -> str:
    """Run a shell script with the arguments `words` in the checkpoint directory of a job, as the job's user,
    and return the output of the script.
    """
    if job.job.state is JobState.RUNNING:
        return _in_allocation(client, job, ("/bin/sh", "-c", script, "sh", "", *words))
    return _by_small_job(client, job, ("/bin/sh", "-c", script, "sh", _directory(job), *words))


def _in_allocation(client: Client, job: JobDetail, command: tuple[str, ...]) -> str:
    output, errors = b"", b""
    for each in client.read_shell(client.open_shell(job.job.id, ShellRequest(command))):
        if each.end and (each.code or each.error):
            raise _unreadable(job, each.error or errors.decode("utf-8", "replace"))
        if each.stream == "stderr":
            errors += b64decode(each.data)
        else:
            output += b64decode(each.data)
    return output.decode("utf-8", "replace")


def _by_small_job(client: Client, job: JobDetail, command: tuple[str, ...]) -> str:
    """Run a command as a new job without GPUs, on the first node of the last attempt of `job`. Return the
    output of the command. If the node is full, the new job waits.
    """
    label = job.job.label
    node = job.job.held[0].node if job.job.held else ""
    spec = JobSpec(
        command,
        name=f"checkpoints-{label}",
        project=job.spec.project,
        queue=job.spec.queue,
        cpu_milli=100,
        memory_mib=64,
        time_limit_s=SMALL_JOB_LIMIT_S,
        affinity=(parse_term(f"node in {node}"),) if node else (),
    )
    number = client.submit(spec, as_user=job.job.user).ids[0]
    print_note(f"Job {label} does not run, so job {number} looks for its checkpoints on {node or 'a node'}.")
    try:
        [done] = wait_until_ended([number])
    except BaseException:
        client.cancel(number)
        raise
    if done.state is not JobState.COMPLETED:
        raise _unreadable(job, b"".join(client.logs(number, stream="stderr")).decode("utf-8", "replace"))
    return b"".join(client.logs(number)).decode("utf-8", "replace")


def _directory(job: JobDetail) -> str:
    """Return the checkpoint directory of a job that does not run. Raise CommandError if the job has none."""
    if job.checkpoint is not None:
        return job.checkpoint.path.rsplit("/", 1)[0]
    spec = job.spec
    if not (spec.checkpoint_dir or spec.checkpoint_command or spec.checkpoint_signal):
        raise _unreadable(job, "")
    return f"{spec.checkpoint_dir or f'{spec.workdir}/corral-checkpoints'}/{job.job.id}"


def _unreadable(job: JobDetail, why: str) -> CommandError:
    why = printable(why.strip()) or "it has no checkpoint directory"
    return CommandError(f"the checkpoints of job {job.job.label} cannot be read: {why}", "", FAILED)
