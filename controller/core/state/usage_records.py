"""Makes usage records for usage reports. A usage record contains the resources that one attempt used on one
of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.core.model.job import Job
from controller.core.model.rows import UsageRow
from wire.agent.reports import AttemptUse, HostUse

_NOT_MEASURED: Mapping[str, AttemptUse] = {}
_NOTHING = AttemptUse(0, 0, host=HostUse())


def usage_rows(job: Job, now: float, so_far: Mapping[str, AttemptUse] = _NOT_MEASURED) -> Iterator[UsageRow]:
    """Yield a usage record for each member of the job's present attempt. For members that still run, the
    record ends at `now`.

    `so_far` contains the measured usage of the members that still run, by node name. The usage of an ended
    member comes from the agent's report of its end. A member that never started gets no record.
    """
    for node, member in job.members.items():
        if member.started_at is None:
            continue
        present = so_far.get(node, _NOTHING)
        gpu_s, use, host = member.gpu_s(0.0, now), member.use or present.use, present.host or HostUse()
        until = max(member.started_at, now if member.ended_at is None else member.ended_at)
        held_s, held = until - member.started_at, member.allocation
        measured_s = gpu_s if use is not None else 0.0
        yield UsageRow(
            job.id,
            job.attempt,
            node,
            job.label,
            job.user,
            job.spec.project,
            job.spec.queue,
            member.started_at,
            until,
            gpu_s,
            measured_s,
            measured_s * use.mean / 100 if use is not None else 0.0,
            use.p95 if use is not None else 0,
            use.peak_mib if use is not None else 0,
            use.wh if use is not None else 0.0,
            max(member.cpu_s, host.cpu_s),
            held.cpu_milli / 1_000 * held_s,
            held.memory_mib * held_s,
            max(member.memory_mib, host.peak_mib),
        )
