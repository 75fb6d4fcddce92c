"""sattach: shows the output of a running step as it is written."""

from __future__ import annotations

import re

from cli.slurm.arguments import COMMON, Option, parse, prints_only_help, switch
from cli.slurm.programs import SlurmError
from cli.slurm.show.controller import controller, job_rows
from cli.slurm.show.steps import STEP_COLUMNS, step_rows

OPTIONS = (
    Option("error-filter"),
    Option("input-filter"),
    switch("label", "l"),
    Option("output-filter"),
    switch("quiet", "Q", "Print no warnings."),
    switch("verbose", "v"),
    *COMMON,
)
_REFUSED = {
    "input-filter": "Corral passes no input to the tasks of a running step. Start the step with srun "
    "--input=FILE, or run a command beside it: corral exec JOB -- COMMAND.",
    "error-filter": "Corral follows whole output files. To follow a task, start the step with "
    "--error=FILE-%t.",
    "output-filter": "Corral follows whole output files. To follow a task, start the step with "
    "--output=FILE-%t.",
    "label": "Corral follows whole output files. Start the step with srun --label.",
}
"""The options of Slurm's sattach that Corral does not have, each with advice for the error message."""
USAGE = "sattach [OPTIONS] JOB.STEP"
_GONE, _NO_FILE = 3, 4
_FOLLOW = f"""
pid=$1
ticks=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 20)
[ "$ticks" = "$2" ] || exit {_GONE}
out=$(readlink "/proc/$pid/fd/1") err=$(readlink "/proc/$pid/fd/2") seen=
set --
for fd in "/proc/$pid/fd"/*; do
    path=$(readlink "$fd") number=${{fd##*/}}
    [ -f "$fd" ] && [ "$number" -gt 0 ] || continue
    case $(sed -n 's/^flags:[^0-9]*//p' "/proc/$pid/fdinfo/$number") in *[12]) ;; *) continue ;; esac
    case "$seen" in *"<$path>"*) continue ;; esac
    seen="$seen<$path>"
    if [ "$path" = "$err" ] && [ "$path" != "$out" ]; then
        tail -q -n 0 -s 0.2 -f --pid="$pid" "$fd" >&2 &
    else
        set -- "$@" "$fd"
    fi
done
[ -n "$seen" ] || exit {_NO_FILE}
[ $# = 0 ] || tail -q -n 0 -s 0.2 -f --pid="$pid" "$@"
wait
"""
"""A shell script that follows the regular files to which a process writes, until the process ends. $1 is the
pid of the process, and $2 its start time in clock ticks.
"""


def main(words: list[str]) -> int:
    """Print new output of a running step: the output that the step writes to its files after this command has
    started.

    1. Find the host and the process of the srun that runs the step.
    2. On this host, run `_FOLLOW` in the job, as `corral exec` does. The script follows the files to which
       this srun writes: the output file of the job, or the files of --output and --error.
    """
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    for name in _REFUSED:
        if arguments.has(name):
            raise SlurmError(f"Corral has no sattach --{name}. {_REFUSED[name]}")
    named = re.fullmatch(r"(\d+(?:_\d+)?)\.(\d+)", arguments.words[0] if len(arguments.words) == 1 else "")
    if named is None:
        raise SlurmError("Name one step, such as: sattach 7.0")
    return _follow(named[1], int(named[2]))


def _follow(job: str, number: int) -> int:
    from cli.jobs import exec_terminal

    with controller() as transport:
        rows = job_rows(transport, STEP_COLUMNS, jobs=[job])
    if not rows:
        raise SlurmError("Invalid job id specified")
    found = next((row["record"] for row in step_rows(rows[0]) if row["record"]["number"] == number), None)
    if found is None:
        raise SlurmError(f"Step {job}.{number} is not known. The steps of the job: squeue -s -j {job}")
    over = SlurmError("Job/step already completing or completed")
    if found["ended_at"] is not None or rows[0]["state"] != "RUNNING":
        raise over
    host, nodes = found["host"], [held[0] for held in rows[0]["held"]]
    if host not in nodes or not found["pid"]:
        raise SlurmError(
            f"srun of this step runs on {host or 'a host'} outside of the job; see its terminal there"
        )
    follow = ("/bin/sh", "-c", _FOLLOW, "sattach", str(found["pid"]), str(found["pid_ticks"]))
    code = exec_terminal.run(rows[0]["id"], follow, host, terminal=False)
    if code == _GONE:
        raise over
    if code == _NO_FILE:
        raise SlurmError(
            "The output of this step goes to a pipe or a terminal, and only files can be followed",
            f"Start the step with --output=FILE, or look at the processes: corral exec {job} -- ps -ef",
        )
    return code
