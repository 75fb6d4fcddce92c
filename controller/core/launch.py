"""What agents are told to start: one order a member, environment included."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from controller.core.jobs import Job
from wire.frames import Start
from wire.spec import signal_name

if TYPE_CHECKING:
    from controller.core.state import State

FIRST_PORT, PORTS = 20_000, 20_000
"""Rendezvous ports of gangs, spread by job id so that neighbours rarely meet."""


class Launch:
    """An attempt as it was when it was placed, and the orders for its members once one is looked at."""

    __slots__ = ("_addresses", "_job", "_members", "_starts", "_was", "key", "time_limit_s")

    def __init__(self, job: Job, addresses: Callable[[Job], dict[str, str]]) -> None:
        self.key = job.id, job.attempt
        self.time_limit_s = job.spec.time_limit_s
        self._job = job
        self._members = job.members
        self._was = job.spec, job.attempt, job.checkpoint
        self._addresses = addresses
        self._starts: dict[str, Start] | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it starts."""
        return tuple(self._members)

    @property
    def starts(self) -> dict[str, Start]:
        """The orders by node."""
        if self._starts is None:
            job = copy(self._job)  # what has become of it since then is nothing to them
            job.members, (job.spec, job.attempt, job.checkpoint) = self._members, self._was
            self._starts = starts_of(job, self._addresses(job))
        return self._starts


def addresses(state: State, job: Job) -> dict[str, str]:
    """Where the nodes of an attempt find each other."""
    return {name: state.nodes.by_name[name].facts.address for name in job.members}


def starts_of(job: Job, addresses: dict[str, str]) -> dict[str, Start]:
    """The start orders of an attempt by node; `addresses` are those of its nodes by name."""
    spec, name = job.spec, job.name
    shared = environment(job, addresses)
    return {
        node: Start(
            job=job.id,
            attempt=job.attempt,
            command=spec.command,
            user=job.user,
            cpu_milli=member.allocation.cpu_milli,
            memory_mib=member.allocation.memory_mib,
            scratch_mib=member.allocation.scratch_mib,
            name=name,
            gpus=member.allocation.gpus,
            numa=member.allocation.numa,
            env={**shared, **place_of(node, rank), **spec.env},
            workdir=spec.workdir,
            time_limit_s=spec.time_limit_s,
            grace_s=spec.grace_s,
            lease_s=spec.lease_s,
            checkpoint=job.checkpoint,
            checkpoint_command=spec.checkpoint_command,
            checkpoint_signal=signal_name(spec.checkpoint_signal),
            checkpoint_dir=spec.checkpoint_dir,
            checkpoint_keep=spec.checkpoint_keep,
            warn_signal=signal_name(spec.warn_signal),
            warn_s=spec.warn_s,
            tasks=spec.tasks_per_node,
            rank=rank,
            nodes=len(job.staying),
            barrier=len(job.members) > 1,
            cpu_limit_milli=spec.cpu_limit_milli,
            memory_limit_mib=spec.memory_limit_mib,
            best_effort=spec.best_effort,
            image=spec.image,
            mounts=spec.mounts,
        )
        for rank, (node, member) in enumerate(job.members.items())
    }


def place_of(node: str, rank: int) -> dict[str, str]:
    """What differs from member to member."""
    return {
        "CORRAL_NODE": node,
        "CORRAL_NODE_RANK": str(rank),
        "NODE_RANK": str(rank),
        "SLURM_NODEID": str(rank),
        "SLURMD_NODENAME": node,
    }


def environment(job: Job, addresses: dict[str, str]) -> dict[str, str]:
    """What every member can read about its job, in our words and in those that launchers know."""
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
        **_in_slurms_words(job, listed, count),
    }
    if job.spec.gang.elastic:
        made["CORRAL_MIN_NODES"] = str(job.spec.gang.min_nodes)
        made["CORRAL_MAX_NODES"] = str(job.spec.nodes)
    if job.array is not None:
        made["CORRAL_ARRAY_ID"] = made["SLURM_ARRAY_JOB_ID"] = str(job.array)
        made["CORRAL_ARRAY_INDEX"] = made["SLURM_ARRAY_TASK_ID"] = str(job.index)
    if job.spec.gang.elastic or len(nodes) * job.spec.tasks_per_node > 1:
        made["MASTER_ADDR"] = addresses[first]
        made["MASTER_PORT"] = str(FIRST_PORT + job.id % PORTS)
    return made


def _in_slurms_words(job: Job, listed: str, count: str) -> dict[str, str]:
    """What training frameworks read to find out that they run under a scheduler, and where."""
    made = {
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_ACCOUNT": job.spec.project,
        "SLURM_JOB_PARTITION": job.spec.queue,
        "SLURM_NNODES": count,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_NODELIST": listed,
        "SLURM_NODELIST": listed,
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": listed,
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_RESTART_COUNT": str(job.attempt - 1),
    }
    return {**made, "SLURM_SUBMIT_DIR": job.spec.workdir} if job.spec.workdir else made
