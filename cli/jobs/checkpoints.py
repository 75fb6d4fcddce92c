"""Lists and deletes the checkpoints of a running job, by commands in the job's allocation."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass

from cli.exit_codes import FAILED, CommandError
from cli.output.formats import Column, Table
from cli.output.table_columns import clock
from wire.api.jobs import JobDetail, ShellRequest
from wire.http.client import Client
from wire.names import JobState
from wire.text import memory

_LIST = (
    'cd "$CORRAL_CHECKPOINT_DIR" || exit 1; for each in *; do [ -e "$each" ] || continue; '
    'printf "%s %s %s\\n" "$(stat -c %Y -- "$each")" "$(du -sb -- "$each" | cut -f1)" "$each"; done'
)
_DELETE = 'cd "$CORRAL_CHECKPOINT_DIR" && rm -rf -- "$@"'


@dataclass(frozen=True)
class CheckpointFile:
    """A file or directory in the checkpoint directory of a job: its name, its size in bytes, and its time in
    seconds since 1970. `resumes` is True for the one with which the next attempt would begin.
    """

    name: str
    bytes: int
    at: float
    resumes: bool


def list_checkpoints(client: Client, job: JobDetail) -> list[CheckpointFile]:
    """Return the checkpoints in the directory of a running job, the newest first."""
    newest = "" if job.checkpoint is None else job.checkpoint.path.rsplit("/", 1)[-1]
    found = []
    for line in _run(client, job, ("/bin/sh", "-c", _LIST)).splitlines():
        at, size, name = line.split(" ", 2)
        found.append(CheckpointFile(name, int(size), float(at), name == newest))
    return sorted(found, key=lambda each: (-each.at, each.name))


def delete_checkpoints(client: Client, job: JobDetail, names: list[str]) -> None:
    """Delete checkpoints of a running job. Raise CommandError if a name is not in the directory, or if the
    next attempt would begin with it.
    """
    known = {each.name: each for each in list_checkpoints(client, job)}
    for name in names:
        if name not in known:
            raise CommandError(
                f"there is no checkpoint {name!r} of job {job.job.label}",
                f"'corral job checkpoints {job.job.label}' lists them.",
            )
        if known[name].resumes:
            raise CommandError(
                f"the next attempt of job {job.job.label} would begin with checkpoint {name!r}",
                "Let the job save a newer one first: corral job checkpoint.",
            )
    _run(client, job, ("/bin/sh", "-c", _DELETE, "sh", *names))


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


def _run(client: Client, job: JobDetail, command: tuple[str, ...]) -> str:
    """Run a command in the allocation of the job, as its user, and return its output."""
    if job.job.state is not JobState.RUNNING:
        where = f" Its last one is {job.checkpoint.path}." if job.checkpoint is not None else ""
        raise CommandError(
            f"job {job.job.label} is not running: it is {job.job.state.value}",
            f"Only checkpoints of running jobs can be listed and deleted.{where}",
        )
    output, errors = b"", b""
    for each in client.read_shell(client.open_shell(job.job.id, ShellRequest(command))):
        if each.end and (each.code or each.error):
            why = each.error or errors.decode("utf-8", "replace").strip() or "it has no checkpoint directory"
            raise CommandError(f"the checkpoints of job {job.job.label} cannot be read: {why}", "", FAILED)
        if each.stream == "stderr":
            errors += b64decode(each.data)
        else:
            output += b64decode(each.data)
    return output.decode("utf-8", "replace")
