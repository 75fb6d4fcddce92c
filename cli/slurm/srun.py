"""srun: starts the tasks of a job step; outside of a job, it first gets an allocation."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping

from cli.slurm.arguments import COMMON, Arguments, Option, Value, help_text, parse, switch
from cli.slurm.programs import VERSION, SlurmError
from cli.slurm.step_counter import counter_file
from cli.slurm.step_layout import StepLayout, layout, step_variables, task_variables
from cli.slurm.step_tasks import StepTasks, TaskCommand
from cli.spec.sbatch_options import JOB_OPTIONS
from wire.cluster.hostlist import expand_hostlist

STEP_OPTIONS = (
    Option("bcast", "", Value.OPTIONAL),
    Option("compress", "", Value.OPTIONAL),
    switch("disable-status", "X"),
    Option("epilog"),
    switch("exact"),
    Option("het-group"),
    Option("immediate", "I", Value.OPTIONAL),
    Option("jobid", "", help="Run the step in this job."),
    Option("kill-on-bad-exit", "K", Value.OPTIONAL, "End all tasks when one fails."),
    switch("label", "l", "Write the number of the task before each line of output."),
    Option("mpi"),
    switch("multi-prog", "", "The operand is a file that names a program for each task."),
    switch("no-allocate", "Z"),
    switch("overlap"),
    switch("preserve-env", "E"),
    Option("prolog"),
    switch("pty", "", "Run task 0 in a terminal."),
    switch("quiet", "Q", "Print only errors."),
    switch("quit-on-interrupt"),
    Option("relative", "r"),
    switch("resv-ports"),
    Option("send-libs", "", Value.OPTIONAL),
    Option("slurmd-debug"),
    Option("task-epilog"),
    Option("task-prolog"),
    Option("threads", "T"),
    switch("unbuffered", "u"),
    switch("verbose", "v"),
    Option("wait", "W", help="End all tasks this many seconds after the first task has ended."),
)
OPTIONS = (*JOB_OPTIONS, *STEP_OPTIONS, *COMMON)
STEP_NAMES = frozenset(option.name for option in STEP_OPTIONS)
USAGE = "srun [OPTIONS] executable [args...]"
_NOT_FOR_TASKS = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_GTIDS")


def main(words: list[str]) -> int:
    """Run the tasks of a step, and return the highest of their exit codes."""
    arguments = parse(OPTIONS, words, intersperse=False)
    if arguments.has("help") or arguments.has("usage"):
        print(help_text(USAGE, OPTIONS if arguments.has("help") else ()))
        return 0
    if arguments.has("version"):
        print(VERSION)
        return 0
    if not arguments.words:
        raise SlurmError("fatal: No command given to execute.")
    if ":" in arguments.words or arguments.has("het-group"):
        raise SlurmError(
            "Corral has no heterogeneous jobs. Submit a job for each kind of node, with --dependency=after."
        )
    if arguments.last("mpi") not in ("", "none", "list"):
        print(
            f"srun: warning: --mpi={arguments.last('mpi')} has no effect: use the launcher of MPI",
            file=sys.stderr,
        )
    environment = dict(os.environ)
    job = arguments.last("jobid") or environment.get("SLURM_JOB_ID", "")
    if not job:
        return _outside(arguments, environment)
    nodes = environment.get("SLURM_JOB_NODELIST", "") if job == environment.get("SLURM_JOB_ID") else ""
    if not nodes:
        from cli.slurm.allocation import nodes_of

        nodes = nodes_of(job)
    return run_step(arguments, job, expand_hostlist(nodes), environment)


def _outside(arguments: Arguments, environment: dict[str, str]) -> int:
    """Get an allocation, run the step in it, and end the allocation with the exit code of the step."""
    from cli.slurm.allocation import Allocation

    options = tuple(
        pair for pair in arguments.options if pair[0] not in STEP_NAMES | {"output", "error", "input"}
    )
    name = os.path.basename(arguments.words[0])
    with Allocation("srun", options, name, environment, quiet=arguments.has("quiet")) as allocation:
        code = run_step(arguments, str(allocation.job), allocation.nodes, environment | allocation.variables)
        allocation.code = code
    return code


def run_step(arguments: Arguments, job: str, nodes: list[str], environment: dict[str, str]) -> int:
    """Run the tasks of a step on the nodes of a job."""
    step = layout(arguments, nodes, environment)
    if arguments.has("pty"):
        return _in_terminal(arguments, job, step, environment)
    umask = os.umask(0o077)
    os.umask(umask)
    # An allocation of this srun has only this step.
    number = _next_step(environment) if "SLURM_JOB_ID" in os.environ else 0
    shared = step_variables(step, job, number, _address(), umask)
    if arguments.has("cpus-per-task"):
        shared["SLURM_CPUS_PER_TASK"] = arguments.last("cpus-per-task")
    base = _exported(arguments.last("export") or environment.get("SLURM_EXPORT_ENV", ""), environment)
    programs = _programs(arguments, len(step.tasks))
    commands = [
        TaskCommand(
            task,
            programs[task.rank],
            {**base, **shared, **task_variables(step, task)},
            _gpu_slice(arguments, task.local),
        )
        for task in step.tasks
    ]
    tasks = StepTasks(job, f"{job}.{number}", environment.get("SLURMD_NODENAME", ""), arguments, environment)
    return tasks.run(commands)


def _exported(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the tasks get, by the rules of --export."""
    kept = {name: value for name, value in environment.items() if name not in _NOT_FOR_TASKS}
    parts = [part for part in text.split(",") if part]
    if parts and "ALL" not in parts:
        always = ("SLURM_", "CORRAL_", "CUDA_VISIBLE_DEVICES", "PATH", "HOME", "USER", "TMPDIR")
        kept = {name: value for name, value in kept.items() if name.startswith(always) or name in parts}
    kept.update(((pair := part.partition("="))[0], pair[2]) for part in parts if "=" in part)
    return kept


def _programs(arguments: Arguments, count: int) -> list[list[str]]:
    """Return the command of each task. With --multi-prog a file has lines such as `0-3 program %t`."""
    if not arguments.has("multi-prog"):
        return [arguments.words] * count
    from wire.job.arrays import array_indices

    found: list[list[str]] = [[] for _ in range(count)]
    try:
        with open(arguments.words[0], encoding="utf-8") as file:
            lines = [shlex.split(line, comments=True) for line in file]
    except (OSError, ValueError) as error:
        raise SlurmError(f"{arguments.words[0]}: {error}") from None
    for words in filter(None, lines):
        ranks = range(count) if words[0] == "*" else array_indices(words[0])
        for offset, rank in enumerate(ranks):
            if rank < count and not found[rank]:
                found[rank] = [word.replace("%t", str(rank)).replace("%o", str(offset)) for word in words[1:]]
    if not all(found):
        raise SlurmError(
            f"Configuration file {arguments.words[0]} names no program for task {found.index([])}"
        )
    return found


def _gpu_slice(arguments: Arguments, local: int) -> tuple[int, int] | None:
    """Return the first and the last of the node's GPUs that a task may use, from 1; None means all of them,
    and (0, 0) none.
    """
    text = arguments.last("gpus-per-task") or arguments.last("ntasks-per-gpu")
    number = int(text.rpartition(":")[2]) if text.rpartition(":")[2].isdigit() else 0
    if arguments.has("ntasks-per-gpu") and number:
        return local // number + 1, local // number + 1
    if arguments.has("gpus-per-task"):
        return (local * number + 1, (local + 1) * number) if number else (0, 0)
    for name in ("gres", "gpus-per-node", "gpus"):
        last = arguments.last(name).rpartition(":")[2]
        if arguments.has(name) and last.isdigit():
            return (1, int(last)) if int(last) else (0, 0)
        if arguments.last(name) == "none":
            return 0, 0
    return None


def _next_step(environment: Mapping[str, str]) -> int:
    """Return the number of the next step of the job: 0 for the first. A file in the temporary directory of
    this host counts the steps of each attempt.
    """
    import fcntl

    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(counter_file(environment), flags, 0o600)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        text = os.read(descriptor, 20)
        number = int(text) if text.isdigit() else 0
        os.pwrite(descriptor, str(number + 1).encode(), 0)
        return number
    finally:
        os.close(descriptor)


def _address() -> str:
    """Return an address of this host. The socket sends nothing: the kernel only chooses the address."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
            return str(sock.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _in_terminal(arguments: Arguments, job: str, step: StepLayout, environment: dict[str, str]) -> int:
    """Run task 0 in the terminal of srun: directly if it runs on this node, otherwise through the agent."""
    node = step.tasks[0].node
    shared = step_variables(step, job, _next_step(environment), _address(), 0o022)
    variables = {**shared, **task_variables(step, step.tasks[0])}
    if node == environment.get("SLURMD_NODENAME"):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(arguments.words[0], arguments.words, {**environment, **variables})  # noqa: S606
        except OSError as error:
            raise SlurmError(f"{node}: task 0: {arguments.words[0]}: {error.strerror}", code=2) from None
    from cli.jobs import exec_terminal

    words = ("/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *arguments.words)
    return exec_terminal.run(job, words, node, sys.stdin.isatty() and sys.stdout.isatty())
