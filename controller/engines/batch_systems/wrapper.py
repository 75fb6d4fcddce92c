"""The shell part of a batch script. It claims the attempt, so that the command runs only once, runs the
command, and records how it ended.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from controller.engines.batch_systems.batch_job import BatchJob

CLAIMED = 75
"""The exit code of a script that does not run the command, because another run of a script has already
claimed the attempt.
"""
NO_RECORDS = 74
"""The exit code of a script that does not run the command, because it cannot write records on its compute
node.
"""
NO_WORKDIR = 73
"""The exit code of a script that does not run the command, because it cannot enter the working directory."""
LATE_S = 20.0
"""The seconds after its record `ended` for which the batch system may still list a job as running. A
slurmctld that was killed starts again with its last saved state, and lists jobs that have ended since as
running, or the accounting lists them as running for ever. This is shorter than PROOF_S.
"""
REFUSALS = {
    CLAIMED: "another job with the same name has already run this attempt",
    NO_RECORDS: "the directory of the records is missing on the compute node, or not writable there; set "
    "`records` of the engine to a directory that the login node and the compute nodes share",
    NO_WORKDIR: "the working directory cannot be entered on the compute node",
}
_SAFE_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_SIGNALS = 64
_DIRECTORY = "corral_dir"
"""The shell variable in which the script keeps the directory of its records. A value from the job's
environment is ignored.
"""


def job_directory(job: BatchJob) -> str:
    """Return the directory of the job's records as a word for a shell. A `~` at its beginning is expanded."""
    if _SAFE_TAG.fullmatch(job.tag) is None:
        raise ValueError(f"{job.tag!r} cannot be the name of a job in a batch system")
    return f"{shell_path(job.directory)}/{job.tag}"


def shell_path(path: str) -> str:
    """Return a path as a word for a shell, in which a `~` at the beginning is expanded."""
    if path == "~":
        return '"$HOME"'
    return '"$HOME"/' + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)


def script_body(job: BatchJob, job_variable: str) -> str:
    """Return the lines of a batch script after the options of the batch system.

    1. Enter the directory of the records, which ask() has made. If there is none, exit with NO_RECORDS. The
       directory is removed when the end of the job is stored, so a batch system that was restarted with an
       old state cannot run the command again after that.
    2. Claim the attempt by creating the directory `claim`. A directory can be created only once, also on a
       shared file system. If it exists, write the record `again` and exit with CLAIMED: the batch system has
       accepted the job twice, or runs it again.
    3. Write the record `started`, set the environment and run the command.
    4. Write the record `ended` with the exit code.

    Invariant: at most one run of the command for each tag. A record has either its old content or its new
    content, because it is written to another file (`.new`), which is then renamed.
    `job_variable` is the variable with which the batch system tells a job its id.
    """
    lines = [
        f"{_DIRECTORY}={job_directory(job)}",
        "umask 077",
        # Look twice, because a file system may show a new directory late.
        '[ -d "$corral_dir" ] || sleep 3',
        f'[ -d "$corral_dir" ] || exit {NO_RECORDS}',
        "record() {",
        "    printf '%s\\n' \"at=$(date +%s) host=$(hostname) job=${" + job_variable + ':-} $2" '
        '> "$corral_dir/$1.new" && mv -f "$corral_dir/$1.new" "$corral_dir/$1"',
        "}",
        'if ! mkdir "$corral_dir/claim"; then',
        f'    [ -d "$corral_dir/claim" ] || exit {NO_RECORDS}',
        f"    record again; exit {CLAIMED}",
        "fi",
        'record started "pid=$$"',
        # Ignore SIGTERM in this shell, but not in the command, so that the shell can write the record `ended`
        # after the command has ended.
        "trap : TERM INT HUP USR1 USR2 XCPU",
        # Run the command in a subshell, so that the variables of the user do not change how this script finds
        # its programs.
        "(",
        *(f"export {name}={shlex.quote(value)}" for name, value in _environment(job)),
        f"umask {job.umask if job.umask is not None else 0o022:03o}",
    ]
    if job.workdir:
        lines.append(
            f'cd {shell_path(job.workdir)} || {{ : > "$corral_dir/no-workdir"; exit {NO_WORKDIR}; }}'
        )
    lines += [
        f"exec {shlex.join(job.command)} {_redirection(job)}",
        ")",
        "code=$?",
        f'if [ -e "$corral_dir/no-workdir" ]; then record ended refused={NO_WORKDIR}; exit {NO_WORKDIR}; fi',
        'record ended "code=$code"',
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _environment(job: BatchJob) -> list[tuple[str, str]]:
    # Leave out names that a shell cannot export, because one such line would end the script, and the name
    # with which the script finds its records.
    return [
        (name, value)
        for name, value in sorted(job.env.items())
        if _VARIABLE.fullmatch(name) and name != _DIRECTORY
    ]


def _redirection(job: BatchJob) -> str:
    sign = ">>" if job.append else ">"
    output = shell_path(job.output) if job.output else '"$corral_dir/stdout"'
    error = shell_path(job.error) if job.error else '"$corral_dir/stderr"'
    if job.output and job.output == job.error:
        return f"< /dev/null {sign} {output} 2>&1"
    return f"< /dev/null {sign} {output} 2{sign} {error}"


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The contents of the records of one job. The times are those of the compute node's clock.

    `code` is the exit code of the command. `signal` is the signal that ended the command; the shell shows it
    as an exit code above 128. `refused` is the exit code of a script that has not run the command, such as
    NO_WORKDIR. All three are None until the end. `again_id` is the id of a job that found the tag claimed.
    """

    tag: str
    started_at: float | None = None
    ended_at: float | None = None
    host: str = ""
    job_id: str = ""
    code: int | None = None
    signal: int | None = None
    refused: int | None = None
    again_id: str = ""


def read_command(directory: str, tag: str) -> str:
    """Return a shell command that prints the records of a job, each line with its file. It exits with
    NO_RECORDS if there is no directory for the job, because the job was forgotten.
    """
    place = f"{shell_path(directory)}/{shlex.quote(tag)}"
    names = r"\( -name started -o -name ended -o -name again \)"
    # Leave out large files, because the job itself can overwrite its records.
    found = f"find {place} -maxdepth 1 {names} -type f -size -9 -exec grep -H '' {{}} +"
    return f"[ -d {place} ] || exit {NO_RECORDS}; {found}"


def ids_command(directory: str) -> str:
    """Return a shell command that prints the ids of all jobs that have a directory of records."""
    place = shell_path(directory)
    found = f"find {place} -mindepth 2 -maxdepth 2 -name id -type f -size -9 -exec cat {{}} +"
    return f"[ ! -d {place} ] || {found}"


def late_command(directory: str) -> str:
    """Return a shell command that prints the ids of the jobs whose record `ended` is older than LATE_S
    seconds.
    """
    place = shell_path(directory)
    ended = f"find {place} -mindepth 2 -maxdepth 2 -name ended -type f -mmin +{LATE_S / 60:.2f}"
    each = 'for each; do cat "${each%/*}/id" 2> /dev/null; done; true'
    return f"[ ! -d {place} ] || {ended} -exec sh -c {shlex.quote(each)} sh {{}} +"


def parse_records(text: str, tag: str) -> JobRecords:
    """Return the records in the output of `read_command`."""
    kinds: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        match = re.fullmatch(r".*/(started|ended|again):(at=.*)", line)
        if match is not None:
            kinds[match[1]] = dict(word.partition("=")[::2] for word in match[2].split())
    return _records(tag, kinds)


def _records(tag: str, kinds: dict[str, dict[str, str]]) -> JobRecords:
    started, ended = kinds.get("started", {}), kinds.get("ended", {})
    try:
        refused = int(ended["refused"]) if "refused" in ended else None
        shown = int(ended["code"]) if ended and refused is None else None
        started_at = float(started["at"]) if started else None
        ended_at = float(ended["at"]) if ended else None
    except (KeyError, ValueError):
        # Treat damaged records as missing, because the list or the accounting of the batch system can still
        # show how the job ended.
        return JobRecords(tag)
    signal = shown - 128 if shown is not None and 128 < shown <= 128 + _MOST_SIGNALS else None
    either = ended or started
    code = None if signal else shown
    return JobRecords(
        tag,
        started_at,
        ended_at,
        either.get("host", ""),
        either.get("job", ""),
        code,
        signal,
        refused,
        kinds.get("again", {}).get("job", ""),
    )
