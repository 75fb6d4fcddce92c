"""srun: starts the tasks of a job step; outside of a job, it first gets an allocation."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from cli.slurm.arguments import COMMON, Arguments, Option, Value, parse, prints_only_help, switch
from cli.slurm.programs import SlurmError
from cli.slurm.steps.agent_link import AGENT_S, RETRY_S, RETRYING, AgentLink
from cli.slurm.steps.layout import StepLayout, layout, step_variables, task_variables
from cli.slurm.steps.links import ApiLink, LinkLost, StepLink, node_of, open_link
from cli.slurm.steps.run_step import StepTasks, TaskCommand
from cli.slurm.steps.task_gpus import GpuSlice
from cli.spec.sbatch.options import JOB_OPTIONS
from wire.cluster.hostlist import expand_hostlist, fold_hostlist
from wire.job.steps import Step

STEP_OPTIONS = (
    Option("bcast", "", Value.OPTIONAL),
    Option("compress", "", Value.OPTIONAL),
    switch("disable-status", "X"),
    Option("epilog"),
    switch("exact"),
    Option("het-group"),
    Option("immediate", "I", Value.OPTIONAL),
    Option("jobid", "", help="Run the step in this job, such as 7."),
    Option("kill-on-bad-exit", "K", Value.OPTIONAL, "End all tasks when one fails."),
    switch("label", "l", "Write the number of the task before each line of output."),
    Option("mpi"),
    switch(
        "multi-prog", "", "Read the program of each task from the file that stands in place of the command."
    ),
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
    Option("wait", "W", help="End all tasks VALUE seconds after the first task has ended."),
)
OPTIONS = (*JOB_OPTIONS, *STEP_OPTIONS, *COMMON)
STEP_NAMES = frozenset(option.name for option in STEP_OPTIONS)
USAGE = "srun [OPTIONS] executable [args...]"
_NOT_FOR_TASKS = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_GTIDS")


def main(words: list[str]) -> int:
    """Run the tasks of a step, in the job of --jobid or of the environment, otherwise in a new allocation.
    Return the highest exit code of the tasks.
    """
    arguments = parse(OPTIONS, words, intersperse=False)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    mpi = arguments.last("mpi") or os.environ.get("SLURM_MPI_TYPE", "")
    if mpi == "list":
        print("MPI plugin types are...\n\tnone\n\tpmi1\n\tpmi2")
        return 0
    if mpi not in ("", "none", "pmi1", "pmi2"):
        raise SlurmError(
            f"Corral has no --mpi={mpi}. Programs of MPICH start with --mpi=pmi1; start others with mpirun."
        )
    if not arguments.words:
        print("srun: fatal: No command given to execute.", file=sys.stderr)
        return 1
    if ":" in arguments.words or arguments.has("het-group"):
        raise SlurmError(
            "Corral has no heterogeneous jobs. Submit a job for each kind of node, with --dependency=after."
        )
    environment = dict(os.environ)
    job = arguments.last("jobid") or environment.get("SLURM_JOB_ID", "")
    if not job:
        return _outside(arguments, environment)
    nodes = environment.get("SLURM_JOB_NODELIST", "") if job == environment.get("SLURM_JOB_ID") else ""
    if not nodes:
        from cli.slurm.submit.allocation import nodes_of

        nodes = nodes_of(job)
    return run_step(arguments, job, expand_hostlist(nodes), environment)


def _outside(arguments: Arguments, environment: dict[str, str]) -> int:
    """Get an allocation, run the step in the allocation, and end the allocation. Return the exit code of the
    step.
    """
    from cli.slurm.submit.allocation import Allocation

    options = tuple(
        pair for pair in arguments.options if pair[0] not in STEP_NAMES | {"output", "error", "input"}
    )
    name = os.path.basename(arguments.words[0])
    with Allocation("srun", options, name, environment, quiet=arguments.has("quiet")) as allocation:
        code = run_step(arguments, str(allocation.job), allocation.nodes, environment | allocation.variables)
        allocation.code = code
    return code


def run_step(arguments: Arguments, job: str, nodes: list[str], environment: dict[str, str]) -> int:
    """Run the tasks of a step on the nodes of a job. Return the highest exit code of the tasks. With --pty in
    a terminal, run only task 0.
    """
    step = layout(arguments, nodes, environment)
    if arguments.has("pty") and os.isatty(0):
        return _in_terminal(arguments, job, step, environment)
    if arguments.has("pty"):
        print(
            "srun: error: Not using a pseudo-terminal, disregarding --pty option", file=sys.stderr, flush=True
        )
    umask = os.umask(0o077)
    os.umask(umask)
    planned = _step(arguments, step, environment)
    link, number = _begin(job, planned, step, environment)
    shared = step_variables(step, job, number, _address(), umask)
    pmi = _wants_pmi(arguments, step, link)
    if pmi:
        shared |= {"PMI_SIZE": str(len(step.tasks)), "PMI_JOBID": f"{job}.{number}"}
    if arguments.has("cpus-per-task"):
        shared["SLURM_CPUS_PER_TASK"] = arguments.last("cpus-per-task")
    if arguments.has("job-name"):
        shared["SLURM_JOB_NAME"] = arguments.last("job-name")
    base = _exported(arguments.last("export") or environment.get("SLURM_EXPORT_ENV", ""), environment)
    programs = _programs(arguments, len(step.tasks))
    slices = _gpu_slices(arguments, step)
    commands = [
        TaskCommand(
            task,
            programs[task.rank],
            {**base, **shared, **task_variables(step, task), **({"PMI_RANK": str(task.rank)} if pmi else {})},
            slices[task.rank],
        )
        for task in step.tasks
    ]
    recorded = replace(planned, number=number)
    tasks = StepTasks(recorded, job, node_of(job, environment), link, arguments, environment)
    if isinstance(link, AgentLink):
        link.on_cancel = tasks.cancel
    counts = [sum(task.node == node for task in step.tasks) for node in step.nodes]
    code = tasks.run(commands, counts, pmi=pmi)
    _finish(link, tasks.ended())
    return code


def _step(arguments: Arguments, step: StepLayout, environment: Mapping[str, str]) -> Step:
    """Return the step as srun records it at its beginning, without a number."""
    import socket

    name = arguments.last("job-name") or os.path.basename(arguments.words[0])
    nodes, cyclic = fold_hostlist(step.nodes), arguments.last("distribution").startswith("cyclic")
    host = environment.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    layout_name = "Cyclic" if cyclic else "Block"
    planned = Step(-1, name, nodes, len(step.nodes), len(step.tasks), layout=layout_name, host=host)
    # As in Slurm, a step with one of these options uses only the CPUs of its tasks.
    exact = any(arguments.has(option) for option in ("exact", "exclusive", "cpus-per-task"))
    cpus = len(step.tasks) * int(arguments.last("cpus-per-task") or 1) if exact else 0
    return replace(planned, pid=os.getpid(), cpus=cpus)


UNRECORDED = 100_000
"""A step that could not be recorded gets a number above this number."""


def _begin(job: str, planned: Step, step: StepLayout, environment: Mapping[str, str]) -> tuple[StepLink, int]:
    """Record that a step begins. Return the link that recorded the step, and the number of the step.

    1. Record the step by the agent of this node; without an agent, or if the agent does not answer, by the
       API of the controller.
    2. If there is neither an agent nor a controller, the controller is being restarted, and the agent with
       it. For a step in a job with tasks on other nodes, wait AGENT_S seconds for the agent. Do not use the
       API meanwhile, because it refuses tasks on nodes whose agents are not connected yet.
    3. If the step cannot be recorded, raise SlurmError if it has tasks on other nodes. A step on this node
       alone runs without a record.
    """
    from wire.http.transport import Refused, Unreachable

    here = node_of(job, environment)
    elsewhere = any(node != here for node in step.nodes)
    deadline, told, why = time.monotonic() + AGENT_S, False, ""
    while True:
        link, restarts = open_link(job, environment), told
        links = (link, ApiLink(job)) if not told else (link,) if isinstance(link, AgentLink) else ()
        for each in links:
            try:
                return each, each.record(planned)
            except (LinkLost, Refused, Unreachable) as error:
                why = why or str(error)
                restarts = isinstance(error, Unreachable) or getattr(error, "status", 0) == 503
        if not (here and elsewhere and restarts) or time.monotonic() > deadline:
            break
        if not told:
            told = True
            print(RETRYING, file=sys.stderr, flush=True)
        time.sleep(RETRY_S)
    if elsewhere:
        raise SlurmError(f"Unable to create step for job {job}: {why}")
    print(f"srun: warning: the step is not recorded: {why}", file=sys.stderr)
    return link, UNRECORDED + os.getpid()


def _finish(link: StepLink, step: Step) -> None:
    """Record that a step has ended, if its beginning was recorded. Close the link."""
    try:
        if step.number < UNRECORDED:
            link.record(step)
    except LinkLost as lost:
        print(f"srun: warning: the end of the step is not recorded: {lost}", file=sys.stderr)
    link.close()


def _wants_pmi(arguments: Arguments, step: StepLayout, link: StepLink) -> bool:
    """Return whether the tasks get a socket for PMI: with --mpi=pmi1 or pmi2, and without --mpi if there are
    several tasks and srun uses the agent. Tasks with a cyclic distribution never get a socket.
    """
    wanted = arguments.last("mpi") or os.environ.get("SLURM_MPI_TYPE", "")
    if arguments.last("distribution").startswith("cyclic"):
        return False
    return wanted in ("pmi1", "pmi2") or (not wanted and len(step.tasks) > 1 and isinstance(link, AgentLink))


def _exported(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the tasks get. `text` is the value of --export."""
    kept = {name: value for name, value in environment.items() if name not in _NOT_FOR_TASKS}
    parts = [part for part in text.split(",") if part]
    if parts and "ALL" not in parts:
        always = ("SLURM_", "CORRAL_", "CUDA_VISIBLE_DEVICES", "PATH", "HOME", "USER", "TMPDIR")
        kept = {name: value for name, value in kept.items() if name.startswith(always) or name in parts}
    kept.update(((pair := part.partition("="))[0], pair[2]) for part in parts if "=" in part)
    return kept


def _programs(arguments: Arguments, count: int) -> list[list[str]]:
    """Return the command of each task, by rank. With --multi-prog, the operand is a file with lines such as
    `0-3 program %t`.
    """
    if not arguments.has("multi-prog"):
        return [arguments.words] * count
    from wire.job.arrays import array_indices

    found: list[list[str]] = [[] for _ in range(count)]
    try:
        with open(arguments.words[0], encoding="utf-8") as file:
            lines = [shlex.split(line, comments=True) for line in file]
    except OSError as error:
        raise SlurmError(f"{arguments.words[0]}: {error.strerror}") from None
    except ValueError as error:
        raise SlurmError(f"{arguments.words[0]}: {error}") from None
    for words in filter(None, lines):
        try:
            ranks = range(count) if words[0] == "*" else array_indices(words[0])
        except ValueError as error:
            raise SlurmError(f"{arguments.words[0]}: {error}") from None
        for offset, rank in enumerate(ranks):
            if rank < count and not found[rank]:
                found[rank] = [word.replace("%t", str(rank)).replace("%o", str(offset)) for word in words[1:]]
    if not all(found):
        raise SlurmError(
            f"Configuration file {arguments.words[0]} names no program for task {found.index([])}"
        )
    return found


def _gpu_slices(arguments: Arguments, step: StepLayout) -> list[GpuSlice | None]:
    """Return the GPUs of each task, by rank. None means all GPUs of the job on the node of the task."""
    pairs = [_gpu_range(arguments, task.local) for task in step.tasks]
    of_step: dict[str, int] = {}
    for task, pair in zip(step.tasks, pairs, strict=True):
        of_step[task.node] = max(of_step.get(task.node, 0), pair[1] if pair else 0)
    return [
        None if pair is None else GpuSlice(*pair, of_step[task.node])
        for task, pair in zip(step.tasks, pairs, strict=True)
    ]


def _gpu_range(arguments: Arguments, local: int) -> tuple[int, int] | None:
    """Return the numbers of the first and the last GPU for the task with the number `local` on its node. The
    job's GPUs on a node are counted from 1. None means all of these GPUs, and (0, 0) means no GPUs.
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
    """Run task 0 in the terminal of srun, and return its exit code. If task 0 is on another node, run it
    there as `corral exec` does.
    """
    node = step.tasks[0].node
    planned = _step(arguments, step, environment)
    link, number = _begin(job, planned, step, environment)
    shared = step_variables(step, job, number, _address(), 0o022)
    variables = {**shared, **task_variables(step, step.tasks[0])}
    if node == node_of(job, environment):
        code = _beside(arguments.words, {**environment, **variables}, node)
    else:
        from cli.jobs import exec_terminal

        words = ("/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *arguments.words)
        code = exec_terminal.run(job, words, node, sys.stdin.isatty() and sys.stdout.isatty())
    ended = replace(planned, number=number, ended_at=time.time())
    _finish(link, replace(ended, signal=code - 128) if code > 128 else replace(ended, code=code))
    return code


def _beside(words: list[str], environment: dict[str, str], node: str) -> int:
    """Run a command as a child process in the terminal of srun, and return its exit code. Ctrl-C reaches only
    the command, because srun ignores it.
    """
    import subprocess

    def defaults() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with subprocess.Popen(words, env=environment, preexec_fn=defaults) as process:
            signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
            code = process.wait()
    except OSError as error:
        print(f"srun: error: {node}: task 0: {words[0]}: {error.strerror}", file=sys.stderr)
        return 2
    return 128 - code if code < 0 else code
