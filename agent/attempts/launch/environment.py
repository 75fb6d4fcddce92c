"""Builds the environment variables of jobs and hooks: CORRAL_*, SLURM_*, and variables for launchers such as
torchrun.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.processes.process_tree import spool_variable
from wire.agent.orders import Start

if TYPE_CHECKING:
    from agent.attempts.launch.start_order import UnixAccount

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_MEMORY_PER_PART = frozenset(("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"))


def job_variables(order: Start, account: UnixAccount, directory: str, cpus: int) -> dict[str, str]:
    """Return the variables for all tasks of an attempt. Defaults come first, then the variables of the start
    order, then the variables of this host. A later value replaces an earlier value. The agent's own variables
    are not passed on.

    `directory` is the attempt's spool directory; `cpus` is the number of CPUs of the attempt on this node.
    """
    name, _, value = spool_variable(directory).partition("=")
    gpus = ",".join(hold.uuid for hold in order.gpus)
    uid, gid = account.switch[:2] if account.switch is not None else (os.geteuid(), os.getegid())
    # Set the variable of only one memory option (--mem, --mem-per-cpu or --mem-per-gpu): the option that the
    # user gave. Slurm does the same.
    memory = {} if _MEMORY_PER_PART & order.env.keys() else {"SLURM_MEM_PER_NODE": str(order.memory_mib)}
    return {
        "PATH": BASE_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell or "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the usual directory, for the job and not for the agent
        "SLURM_CPUS_PER_TASK": str(max(1, cpus // order.tasks)),
        # Let the job's own variables replace the variables that Corral has set above. For instance, the job
        # may set SLURM_CPUS_PER_TASK.
        **order.env,
        "CUDA_VISIBLE_DEVICES": gpus,
        "CORRAL_GPUS": str(len(order.gpus)),
        "CORRAL_CPU_MILLI": str(order.cpu_milli),
        "CORRAL_MEMORY_MIB": str(order.memory_mib),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_UID": str(uid),
        "SLURM_JOB_GID": str(gid),
        **memory,
        "SLURM_GPUS_ON_NODE": str(len(order.gpus)),
        name: value,
    }


def host_variables(cluster_name: str, gpus: list[int]) -> dict[str, str]:
    """Return the SLURM_* variables that the start order does not have: the name of the cluster, and the
    indices of the job's GPUs on this host. CUDA_VISIBLE_DEVICES has the UUIDs of the same GPUs.
    """
    variables = {"SLURM_CLUSTER_NAME": cluster_name, "SLURM_WORKING_CLUSTER": cluster_name}
    if gpus:
        variables["SLURM_JOB_GPUS"] = variables["GPU_DEVICE_ORDINAL"] = ",".join(map(str, gpus))
    return variables


def task_variables(order: Start) -> list[dict[str, str]]:
    """Return one dict for each task of this node, with the variables that only this task gets, such as RANK.
    If the whole job has only one task, its dict is empty, because a launcher such as torchrun would wait for
    other tasks if RANK were set.
    """
    size = order.tasks * order.nodes
    if size == 1:
        return [{}]
    ranks = range(order.rank * order.tasks, (order.rank + 1) * order.tasks)
    return [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(order.tasks),
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(local),
            "SLURM_NTASKS": str(size),
            "SLURM_NPROCS": str(size),
            "SLURM_NTASKS_PER_NODE": str(order.tasks),
            "SLURM_STEP_NUM_TASKS": str(size),
            "SLURM_TASKS_PER_NODE": f"{order.tasks}(x{order.nodes})" if order.nodes > 1 else str(order.tasks),
        }
        for local, rank in enumerate(ranks)
    ]


def has_checkpoints(order: Start) -> bool:
    return bool(order.checkpoint_dir or order.checkpoint_command or order.checkpoint_signal)


def checkpoint_variables(order: Start, cwd: str) -> dict[str, str]:
    """Return the variables with the checkpoint directory and the newest checkpoint of earlier attempts; empty
    if the job writes no checkpoints. The directory is named after the job's id. It is in the checkpoint
    directory of the order, or in `cwd`/corral-checkpoints if the order has none.
    """
    variables = {}
    if has_checkpoints(order):
        folder = order.checkpoint_dir or os.path.join(cwd, "corral-checkpoints")
        variables["CORRAL_CHECKPOINT_DIR"] = os.path.join(folder, str(order.job))
    if order.checkpoint is not None:
        variables["CORRAL_CHECKPOINT"] = order.checkpoint.path
    return variables


def hook_variables(order: Start, account: UnixAccount, directory: str) -> dict[str, str]:
    """Return the variables for prolog and epilog. No variable comes from the job's own environment, because
    prolog and epilog may run as root. `directory` is the attempt's spool directory.
    """
    name, _, value = spool_variable(directory).partition("=")
    return {
        "PATH": BASE_PATH,
        "LANG": "C.UTF-8",
        "CORRAL_JOB_ID": str(order.job),
        "CORRAL_ATTEMPT": str(order.attempt),
        "CORRAL_USER": order.user,
        "CORRAL_ACCOUNT": account.name,
        "CORRAL_NODE_RANK": str(order.rank),
        "CUDA_VISIBLE_DEVICES": ",".join(hold.uuid for hold in order.gpus),
        name: value,
    }


def home_directory(account: UnixAccount) -> str:
    """Return the working directory for a job that does not set one: the user's home directory. If the home
    directory does not exist, return /.
    """
    return account.home if os.path.isdir(account.home) else "/"
