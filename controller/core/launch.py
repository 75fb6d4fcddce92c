"""What an agent is told to start: the order for one member, environment included."""

from __future__ import annotations

from controller.core.jobs import Job, Member
from wire.frames import Start

FIRST_PORT, PORTS = 20_000, 20_000
"""Rendezvous ports of gangs, spread by job id so that neighbours rarely meet."""


def start_of(job: Job, member: Member, addresses: dict[str, str]) -> Start:
    """The start order for one member; `addresses` are those of the job's nodes by name."""
    allocation, spec = member.allocation, job.spec
    return Start(
        job=job.id,
        attempt=job.attempt,
        command=spec.command,
        user=job.user,
        cpu_milli=allocation.cpu_milli,
        memory_mib=allocation.memory_mib,
        name=job.name,
        gpus=allocation.gpus,
        numa=allocation.numa,
        env={**environment(job, allocation.node, addresses), **spec.env},
        workdir=spec.workdir,
        time_limit_s=spec.time_limit_s,
        grace_s=spec.grace_s,
    )


def environment(job: Job, node: str, addresses: dict[str, str]) -> dict[str, str]:
    """What every job can read about itself, in our words and in those that launchers know."""
    nodes = list(job.members)
    rank = nodes.index(node)
    made = {
        "CORRAL_JOB_ID": str(job.id),
        "CORRAL_JOB_LABEL": job.label,
        "CORRAL_JOB_NAME": job.name,
        "CORRAL_ATTEMPT": str(job.attempt),
        "CORRAL_USER": job.user,
        "CORRAL_PROJECT": job.spec.project,
        "CORRAL_NODE": node,
        "CORRAL_NODES": ",".join(nodes),
        "CORRAL_NODE_RANK": str(rank),
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NODEID": str(rank),
        "SLURM_JOB_NODELIST": ",".join(nodes),
    }
    if job.array is not None:
        made["CORRAL_ARRAY_ID"] = made["SLURM_ARRAY_JOB_ID"] = str(job.array)
        made["CORRAL_ARRAY_INDEX"] = made["SLURM_ARRAY_TASK_ID"] = str(job.index)
    if len(nodes) > 1:
        made["MASTER_ADDR"] = addresses[nodes[0]]
        made["MASTER_PORT"] = str(FIRST_PORT + job.id % PORTS)
        made["NODE_RANK"] = str(rank)
        made["NNODES"] = str(len(nodes))
    return made
