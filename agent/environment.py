"""What a job finds in its environment: in our words, in Slurm's, and in those that launchers read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.tree import mark
from wire.frames import Start

if TYPE_CHECKING:
    from agent.orders import Account

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def shared(order: Start, account: Account, place: str, cpus: int) -> dict[str, str]:
    """A small base, then what the order says, then what only this host knows; nothing of the agent's own."""
    name, _, value = mark(place).partition("=")
    gpus = ",".join(hold.uuid for hold in order.gpus)
    return {
        "PATH": BASE_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell or "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the usual place, for the job and not for us
        **order.env,
        "CUDA_VISIBLE_DEVICES": gpus,
        "CORRAL_GPUS": str(len(order.gpus)),
        "CORRAL_CPU_MILLI": str(order.cpu_milli),
        "CORRAL_MEMORY_MIB": str(order.memory_mib),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_CPUS_PER_TASK": str(max(1, cpus // order.tasks)),
        "SLURM_MEM_PER_NODE": str(order.memory_mib),
        "SLURM_GPUS_ON_NODE": str(len(order.gpus)),
        name: value,
    }


def of_tasks(order: Start) -> list[dict[str, str]]:
    """What differs from task to task; a launcher must not take one task on one node for a gang."""
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


def saves(order: Start) -> bool:
    """Does the job say that it saves its state?"""
    return bool(order.checkpoint_dir or order.checkpoint_command or order.checkpoint_signal)


def of_checkpoints(order: Start, cwd: str) -> dict[str, str]:
    """Where to save, for a job that does; and what an earlier attempt of it has saved."""
    made = {}
    if saves(order):
        folder = order.checkpoint_dir or os.path.join(cwd, "corral-checkpoints")
        made["CORRAL_CHECKPOINT_DIR"] = os.path.join(folder, str(order.job))
    if order.checkpoint is not None:
        made["CORRAL_CHECKPOINT"] = order.checkpoint.path
    return made


def of_hooks(order: Start, account: Account, place: str) -> dict[str, str]:
    """What prolog and epilog learn: nothing that the user could have set, for they may run as root."""
    name, _, value = mark(place).partition("=")
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


def home(account: Account) -> str:
    """Where a job begins that names no directory."""
    return account.home if os.path.isdir(account.home) else "/"
