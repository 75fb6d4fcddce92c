"""The shell commands for pilots, and the readers of their output. Nothing here runs a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from controller.engines.batch_systems.batch_job import BatchJob, Phase
from controller.engines.batch_systems.slurm.batch_script import script_head
from controller.engines.batch_systems.slurm.job_states import phase_of
from controller.engines.batch_systems.slurm.text_output import EPOCH_TIMES, SACCT, parse_sacct, rows
from controller.engines.batch_systems.wrapper import job_directory, shell_path

_SERVE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from agent.host.pilot_relay import serve; "
    "serve(sys.argv[2])"
)
_JOIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from agent.host.pilot_relay import join; "
    "join(sys.argv[2], sys.argv[1])"
)
_ENV = "env " + " ".join(f"{name}={value}" for name, value in EPOCH_TIMES.items())
_SQUEUE = f"{_ENV} squeue -h -a -t all -o '%A|%T|%e|%N|%j' -u \"$(id -un)\""
_SACCT = f"{_ENV} {shlex.join(SACCT)} -j"
LISTED_DAYS = 2
"""The days after which the files of a pilot are deleted. The records of machines are kept as long."""


@dataclass(frozen=True, slots=True)
class PilotStatus:
    """One pilot in Slurm. `ends_at` is the end of its time limit, and `proven` is True if the accounting says
    that the allocation has ended.
    """

    ref: str
    token: str
    phase: Phase
    node: str = ""
    ends_at: float | None = None
    proven: bool = False


def pilot_script(job: BatchJob, python: str, agent: str, sockets: str) -> str:
    """Return the script of a pilot for sbatch. Its foreground process is the relay of agent/host, so the
    allocation has all processes of the pilot's jobs, and ends them when it ends.
    """
    return (
        script_head(job)
        + f"umask 077\nexec >> {job_directory(job)}/log 2>&1\n"
        + f"exec {shlex.quote(python)} -I -S -X utf8 -c {shlex.quote(_SERVE)} {shell_path(agent)} "
        + f'{shlex.quote(sockets)}/"$SLURM_JOB_ID"\n'
    )


def submit_command(job: BatchJob) -> str:
    """Return the command that submits the script on stdin. The same job is submitted once."""
    return (
        f"umask 077; directory={job_directory(job)}\n"
        'mkdir -p "$directory" || exit 91\n'
        'if [ -s "$directory/id" ]; then cat "$directory/id"; exit 0; fi\n'
        'cat > "$directory/script" || exit 91\n'
        'cd / && answer=$(sbatch --parsable "$directory/script") || exit 90\n'
        'printf \'%s\\n\' "$answer" > "$directory/id.new" && mv -f "$directory/id.new" "$directory/id"\n'
        "printf '%s\\n' \"$answer\""
    )


def upload_command(agent: str) -> str:
    """Return the command that writes the agent program on stdin to a file, with a rename at the end."""
    path = shell_path(agent)
    return f'umask 077; mkdir -p "$(dirname {path})" && cat > {path}.$$ && mv -f {path}.$$ {path}'


def join_command(ref: str, python: str, agent: str, sockets: str) -> str:
    """Return the command that connects stdin and stdout to a new agent in the allocation `ref`. The step
    takes no resources of its own, because the agent's jobs use those of the allocation.
    """
    step = ("--overlap", "--mem=0", "--gres=none", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--quiet")
    return (
        f"exec srun --jobid={shlex.quote(ref)} {' '.join(step)} "
        f"{shlex.quote(python)} -I -S -X utf8 -c {shlex.quote(_JOIN)} {shell_path(agent)} "
        f"{shlex.quote(f'{sockets}/{ref}')}"
    )


def look_commands(records: str, prefix: str) -> tuple[str, ...]:
    """Return the commands whose outputs `pilots` reads: the list of jobs, the ids of the pilots that have
    files, and their accounting.
    """
    place = shell_path(records)
    pilots = shlex.quote(f"{prefix}*")
    ids = f"find {place} -mindepth 2 -maxdepth 2 -path {place}/{pilots}/id -type f -size -9"
    old = f"find {place} -mindepth 1 -maxdepth 1 -name {pilots} -mtime +{LISTED_DAYS} -exec rm -rf {{}} +"
    return (
        _SQUEUE,
        f"[ -d {place} ] || exit 0; {old}; {ids} -exec cat {{}} +",
        f"[ -d {place} ] || exit 0; ids=$({ids} -exec cat {{}} + | cut -d ';' -f 1 | paste -s -d , -); "
        f'[ -z "$ids" ] || {_SACCT} "$ids"',
    )


def pilots(prefix: str, squeue: str, sacct: str) -> Iterator[PilotStatus]:
    """Yield the pilots in the outputs of `look_commands`.

    1. A pilot that squeue lists as alive is alive, whatever the accounting says.
    2. A pilot has ended if squeue does not list it as alive and the accounting says that all its runs have
       ended. Until then it counts as alive, because its jobs may run.
    """
    runs: dict[str, list[Phase]] = {}
    names: dict[str, str] = {}
    for run in parse_sacct(sacct):
        runs.setdefault(run.id, []).append(run.phase)
        names[run.id] = run.tag
    listed = {ref: (phase_of(state), ends, node, name) for ref, state, ends, node, name in rows(squeue, 5)}
    for ref, (phase, ends, node, name) in listed.items():
        if not name.startswith(prefix):
            continue
        proven = not phase.alive and ref in runs and not any(each.alive for each in runs[ref])
        limit = float(ends) if ends.isdigit() and phase is Phase.RUNNING else None
        yield PilotStatus(ref, name, phase, node, limit, proven)
    for ref, phases in runs.items():
        if ref not in listed and names[ref].startswith(prefix):
            proven = not any(each.alive for each in phases)
            yield PilotStatus(ref, names[ref], Phase.ENDED if proven else Phase.UNKNOWN, proven=proven)
