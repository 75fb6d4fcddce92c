"""Makes the start orders of an attempt. A start order is a message to the agent of one node, with the command
and environment of the job's processes.
"""

from __future__ import annotations

from functools import lru_cache

from controller.core.model.job import NEVER, Job
from wire.agent.orders import Start
from wire.cluster.hostlist import fold_hostlist
from wire.job.arrays import array_indices
from wire.job.output_files import expand_patterns, is_per_node
from wire.job.spec import signal_name
from wire.names import SLURM_QOS

NO_INDEX = 4_294_967_294
"""The number that replaces the pattern %a (array index) for a job that is not in an array, as in Slurm."""

HOLD = ("/bin/sh", "-c", "exec /bin/sleep 2147483647")
"""The command on all nodes of a batch job except the first. This command sleeps until it is stopped, when the
batch script on the first node has ended.
"""

FIRST_PORT, PORTS, PORT_STEP = 20_000, 20_000, 997
"""The first rendezvous port (at which the members of a gang find each other), the number of these ports, and
the distance between the ports of two attempts. The port depends on the job id, so that two gangs on one node
rarely use the same port.
"""


def start_frames(job: Job, addresses: dict[str, str], qos: str = SLURM_QOS) -> dict[str, Start]:
    """Return the start order of each node (a Start message), by node name. `addresses` contains the network
    address of each node, and `qos` is the QOS that Slurm's commands show for the job.
    """
    spec, name = job.spec, job.name
    shared = environment(job, addresses, qos)
    paths = {node: _path_values(job, node, rank) for rank, node in enumerate(job.members)}
    return {
        node: Start(
            job=job.id,
            attempt=job.attempt,
            command=HOLD if spec.batch and rank else spec.command,
            user=job.user,
            cpu_milli=member.allocation.cpu_milli,
            memory_mib=member.allocation.memory_mib,
            scratch_mib=member.allocation.scratch_mib,
            name=name,
            gpus=member.allocation.gpus,
            numa=member.allocation.numa,
            env={**shared, **rank_environment(node, rank), **spec.env},
            workdir=spec.workdir,
            time_limit_s=None if job.limit == NEVER else job.limit,
            grace_s=spec.grace_s,
            lease_s=spec.lease_s,
            checkpoint=job.checkpoint,
            checkpoint_command=spec.checkpoint_command,
            checkpoint_signal=signal_name(spec.checkpoint_signal),
            checkpoint_dir=spec.checkpoint_dir,
            checkpoint_keep=spec.checkpoint_keep,
            checkpoint_every_s=spec.checkpoint_every_s,
            checkpoint_mib=spec.checkpoint_mib,
            warn_signal=signal_name(spec.warn_signal),
            warn_s=spec.warn_s,
            tasks=1 if spec.batch else spec.tasks_per_node,
            rank=rank,
            nodes=1 if spec.batch else len(job.staying),
            barrier=len(job.members) > 1,
            cpu_limit_milli=spec.cpu_limit_milli,
            memory_limit_mib=spec.memory_limit_mib,
            best_effort=spec.best_effort,
            image=spec.image,
            mounts=spec.mounts,
            umask=spec.umask,
            output="" if spec.batch and rank else expand_patterns(spec.output, paths[node]),
            error="" if spec.batch and rank else expand_patterns(spec.error, paths[node]),
            append=_appends(job, rank),
            merge_output=spec.merge_output,
            health=None if rank else spec.health,
        )
        for rank, (node, member) in enumerate(job.members.items())
    }


def _path_values(job: Job, node: str, rank: int) -> dict[str, str]:
    """Return the values that replace patterns such as %j (the job id) in the paths of --output and
    --error.
    """
    in_array = job.array is not None
    return {
        "j": str(job.id),
        "J": str(job.id),
        "A": str(job.array if in_array else job.id),
        "a": str(job.index if in_array else NO_INDEX),
        "t": "0",
        "s": "batch",
        "x": job.name,
        "N": node,
        "n": str(rank),
        "u": job.user,
    }


def _appends(job: Job, rank: int) -> bool:
    """Return whether the attempt appends to its output files. Otherwise it truncates these files. By default
    every attempt after the first appends, so that the output of earlier attempts is not lost.
    """
    spec = job.spec
    if rank and not (is_per_node(spec.output) or is_per_node(spec.error)):
        # If all members write to one file, let the first member truncate the file and the other members
        # append to it.
        return True
    return spec.open_mode == "append" or (not spec.open_mode and job.attempt > 1)


def rank_environment(node: str, rank: int) -> dict[str, str]:
    """Return the environment variables that differ between the members of a gang. `rank` is the number of the
    node in the gang, from 0.
    """
    return {
        "CORRAL_NODE": node,
        "CORRAL_NODE_RANK": str(rank),
        "NODE_RANK": str(rank),
        "SLURM_NODEID": str(rank),
        "SLURMD_NODENAME": node,
    }


def environment(job: Job, addresses: dict[str, str], qos: str = SLURM_QOS) -> dict[str, str]:
    """Return the environment variables that are the same for all members of a gang: CORRAL_*, SLURM_*, and
    the variables of torchrun and other launchers.
    """
    nodes = [node for node, member in job.members.items() if member.ended_at is None and not member.leaving]
    first = next(iter(job.members))
    listed, count = ",".join(nodes), str(len(nodes))
    made = {
        "CORRAL_JOB_ID": str(job.id),
        "CORRAL_JOB_LABEL": job.label,
        "CORRAL_JOB_NAME": job.name,
        "CORRAL_ATTEMPT": str(job.attempt),
        "CORRAL_USER": job.user,
        "CORRAL_PROJECT": job.spec.project,
        "CORRAL_NODES": listed,
        "NNODES": count,
        **_slurm_variables(job, nodes, qos),
    }
    if job.spec.gang.elastic:
        made["CORRAL_MIN_NODES"] = str(job.spec.gang.min_nodes)
        made["CORRAL_MAX_NODES"] = str(job.spec.nodes)
    if job.array is not None:
        made["CORRAL_ARRAY_ID"] = made["SLURM_ARRAY_JOB_ID"] = str(job.array)
        made["CORRAL_ARRAY_INDEX"] = made["SLURM_ARRAY_TASK_ID"] = str(job.index)
        made.update(_slurm_array_variables(job.spec.array or ""))
    if job.workload is not None:
        made["CORRAL_WORKLOAD_ID"], made["CORRAL_TASK"] = str(job.workload), job.task
    if job.spec.batch:
        made.update(_slurm_batch_variables(job, len(nodes)))
    else:
        made.update(_slurm_step_variables(nodes))
    if job.spec.gang.elastic or len(nodes) * job.spec.tasks_per_node > 1:
        made["MASTER_ADDR"] = addresses[first]
        # Use another port for each attempt, because the previous attempt may have failed when another process
        # used its port.
        made["MASTER_PORT"] = str(FIRST_PORT + (job.id + (job.attempt - 1) * PORT_STEP) % PORTS)
    return made


@lru_cache(maxsize=256)
def _slurm_array_variables(text: str) -> dict[str, str]:
    indices = array_indices(text) if text else []
    if not indices:
        return {}
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        "SLURM_ARRAY_TASK_STEP": text.partition("%")[0].partition(":")[2].partition(",")[0] or "1",
    }


def _slurm_batch_variables(job: Job, nodes: int) -> dict[str, str]:
    """Return the SLURM_* variables for a batch script, such as the number of its tasks.

    As in Slurm, the number of tasks is not set if the job has one task for each node by default. If the user
    has set the number of tasks, the variables for it are in `env` of the job's spec.
    """
    each, tasks = job.spec.tasks_per_node, job.spec.tasks_per_node * nodes
    made = {
        "ENVIRONMENT": "BATCH",
        "SLURM_TASKS_PER_NODE": _on_each(each, nodes),
        "SLURM_CPUS_PER_TASK": str(max(1, job.spec.cpu_milli // 1_000 // each)),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_PRIO_PROCESS": "0",
    }
    if each > 1:
        made.update(SLURM_NTASKS=str(tasks), SLURM_NPROCS=str(tasks), SLURM_NTASKS_PER_NODE=str(each))
    return made


def _slurm_step_variables(nodes: list[str]) -> dict[str, str]:
    """Return the SLURM_* variables for a job whose command runs on all nodes, as a job step does in Slurm."""
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NODELIST": fold_hostlist(nodes),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
    }


def _on_each(number: int, nodes: int) -> str:
    """Return `number` for each of `nodes` nodes in the form of Slurm, such as 4(x2) for 4 on each of two
    nodes.
    """
    return f"{number}(x{nodes})" if nodes > 1 else str(number)


def _slurm_variables(job: Job, nodes: list[str], qos: str) -> dict[str, str]:
    """Return the SLURM_* variables that describe the job and its nodes."""
    listed, count = fold_hostlist(nodes), str(len(nodes))
    made = {
        # Slurm's own commands may be installed on the node. Keep them from reading the configuration of
        # another cluster.
        "SLURM_CONF": "/dev/null",
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_ACCOUNT": job.spec.project,
        "SLURM_JOB_PARTITION": job.spec.queue,
        "SLURM_JOB_QOS": qos,
        "SLURM_JOB_CPUS_PER_NODE": _on_each(max(1, job.spec.cpu_milli // 1_000), len(nodes)),
        "SLURM_NNODES": count,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_NODELIST": listed,
        "SLURM_NODELIST": listed,
    }
    if job.attempt > 1:
        # Set this variable only after a requeue, because scripts resume an earlier attempt if the variable
        # exists.
        made["SLURM_RESTART_COUNT"] = str(job.attempt - 1)
    return {**made, "SLURM_SUBMIT_DIR": job.spec.workdir} if job.spec.workdir else made
