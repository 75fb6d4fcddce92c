"""The layout of a job step: the number of its tasks, the node of each task, and the variables of each
task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.slurm.arguments import Arguments
from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts
from wire.agent.orders import STEP_VARIABLE
from wire.cluster.hostlist import fold_hostlist


@dataclass(frozen=True)
class Task:
    """One task of a step: its rank in the step, its number on its node (`local`), its node, and the number of
    this node in the step (`node_rank`). All numbers count from 0.
    """

    rank: int
    local: int
    node: str
    node_rank: int


@dataclass(frozen=True)
class StepLayout:
    """The tasks of a step in the order of their ranks, and the nodes of the step."""

    nodes: tuple[str, ...]
    tasks: tuple[Task, ...]

    def counts(self) -> str:
        """Return the number of tasks on each node in the form of Slurm, such as 2(x3),1."""
        found: list[list[int]] = []
        for node in self.nodes:
            count = sum(task.node == node for task in self.tasks)
            if found and found[-1][0] == count:
                found[-1][1] += 1
            else:
                found.append([count, 1])
        return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in found)


def layout(arguments: Arguments, job_nodes: Sequence[str], environment: Mapping[str, str]) -> StepLayout:
    """Return the tasks of a step in a job on these nodes.

    1. Choose the nodes of -w; without -w, all nodes of the job. Leave out the nodes of -x, and with -r N the
       first N of these nodes. With -N, keep only the first N of the rest.
    2. Take the number of tasks from the first of these that is given: -n; --ntasks-per-node times the nodes;
       the tasks of the job (SLURM_NTASKS); one task for each node. With -N, take at least N.
    3. Raise SlurmError if the tasks need more CPUs than the job has on these nodes, unless --overcommit is
       given.
    4. Leave out nodes that would get no task. Divide the tasks evenly among the other nodes; if they cannot
       be divided evenly, the first nodes get one task more. With both -n and --ntasks-per-node, fill one node
       after the other.
    5. Number the tasks of the first node, then those of the second, and so on. With --distribution=cyclic,
       number the first task of each node, then the second of each node, and so on.
    """
    nodes = list(job_nodes)
    if arguments.has("nodelist"):
        wanted = hosts(arguments.last("nodelist"))
        missing = [node for node in wanted if node not in nodes]
        if missing:
            raise SlurmError(
                f"Unable to create step for job: Requested node configuration is not available: {missing[0]}"
            )
        nodes = wanted
    if arguments.has("exclude"):
        excluded = hosts(arguments.last("exclude"))
        nodes = [node for node in nodes if node not in excluded]
    first = arguments.last("relative") or "0"
    if not first.isdigit():
        raise SlurmError(f'Invalid numeric value "{first}" for --relative.')
    nodes = nodes[int(first) :]
    if not nodes:
        raise SlurmError("Unable to create step for job: Requested node configuration is not available")
    count = _number(arguments, "nodes", 0)
    if count > len(nodes):
        raise SlurmError("Unable to create step for job: More processors requested than permitted")
    nodes = nodes[: count or len(nodes)]
    each = _number(arguments, "ntasks-per-node", 0)
    total = _number(arguments, "ntasks", 0) or each * len(nodes) or int(environment.get("SLURM_NTASKS") or 0)
    total = max(total or len(nodes), count)
    _require_cpus(arguments, total, len(nodes), environment)
    nodes = nodes[: -(-total // each)] if each else nodes[:total]
    low, more = divmod(total, len(nodes))
    sizes = [low + (place < more) for place in range(len(nodes))]
    if each and arguments.has("ntasks"):
        sizes = [min(each, total - each * place) for place in range(len(nodes))]
    pairs = [(place, local) for place, size in enumerate(sizes) for local in range(size)]
    if arguments.last("distribution").startswith("cyclic"):
        pairs.sort(key=lambda pair: (pair[1], pair[0]))
    tasks = (Task(rank, local, nodes[place], place) for rank, (place, local) in enumerate(pairs))
    return StepLayout(tuple(nodes), tuple(tasks))


def _require_cpus(arguments: Arguments, tasks: int, nodes: int, environment: Mapping[str, str]) -> None:
    """Raise SlurmError if `tasks` tasks need more CPUs than the job has on `nodes` nodes, unless --overcommit
    is given.
    """
    cpus = environment.get("SLURM_JOB_CPUS_PER_NODE", "").partition("(")[0]
    each = _number(arguments, "cpus-per-task", 1)
    # Allow at least as many CPUs as the job has tasks (SLURM_NTASKS), because a job may have more tasks than
    # CPUs. If the number of CPUs is unknown, allow the CPUs of all tasks.
    most = (
        max(int(cpus) * nodes, int(environment.get("SLURM_NTASKS") or 0)) if cpus.isdigit() else tasks * each
    )
    if tasks * each > most and not arguments.has("overcommit"):
        raise SlurmError(
            f"the step needs {tasks * each} CPUs, and the job has {most} on {nodes} nodes; "
            "write fewer tasks, or --overcommit",
            "Unable to create step for job: More processors requested than permitted",
        )


def _number(arguments: Arguments, name: str, default: int) -> int:
    text = arguments.last(name).partition("-")[0]
    if not text:
        return default
    if not text.isdigit() or not int(text):
        raise SlurmError(f'Invalid numeric value "{arguments.last(name)}" for --{name}.')
    return int(text)


def step_variables(step: StepLayout, job: str, number: int, address: str, umask: int) -> dict[str, str]:
    """Return the environment variables that are the same for all tasks of a step. `address` is the address of
    the host on which srun runs.
    """
    count, nodes = str(len(step.tasks)), fold_hostlist(step.nodes)
    return {
        STEP_VARIABLE: f"{job}.{number}",
        "SLURM_STEP_ID": str(number),
        "SLURM_STEPID": str(number),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": str(len(step.nodes)),
        "SLURM_STEP_NUM_TASKS": count,
        "SLURM_STEP_TASKS_PER_NODE": step.counts(),
        "SLURM_TASKS_PER_NODE": step.counts(),
        "SLURM_NTASKS": count,
        "SLURM_NPROCS": count,
        "SLURM_NNODES": str(len(step.nodes)),
        "SLURM_DISTRIBUTION": "block",
        "SLURM_LAUNCH_NODE_IPADDR": address,
        "SLURM_SRUN_COMM_HOST": address,
        "SLURM_UMASK": f"{umask:04o}",
        "SRUN_DEBUG": "3",
    }


def task_variables(step: StepLayout, task: Task) -> dict[str, str]:
    """Return the environment variables that differ from task to task."""
    return {
        "SLURM_PROCID": str(task.rank),
        "SLURM_LOCALID": str(task.local),
        "SLURM_NODEID": str(task.node_rank),
        "SLURMD_NODENAME": task.node,
        "SLURM_GTIDS": ",".join(str(each.rank) for each in step.tasks if each.node == task.node),
    }
