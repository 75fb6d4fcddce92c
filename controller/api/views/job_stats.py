"""Compares the requested and the used resources of a job, and advises which options to change.

1. Add up the allocations of the attempt, and its measured use, over its nodes.
2. For each resource, compute the used fraction of the requested amount.
3. If the fraction is below `_LOW`, advise to request less. If the CPUs or the memory were used nearly
   completely (`_FULL`), advise to request more. Give no advice for an attempt shorter than `SHORTEST_S`,
   because its mean values are not typical.

Example: a job requests 16 CPUs and 64 GiB, and uses 3 CPUs on average and 20 GiB at its peak. The advice is
`--cpus 4 --memory 24G`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from controller.core.model.job import NEVER, Job, Member
from controller.core.state.state import State
from wire.agent.reports import AttemptUse, HostUse
from wire.api.service.job_stats import SHORTEST_S, JobStats, ResourceStats
from wire.names import WHOLE_GPU, JobState
from wire.text import duration, memory

_LOW = 0.5
_FULL = 0.95
_MARGIN = 1.2
"""The advised amount is the used amount (of memory the peak, of CPUs and GPUs the mean) multiplied by this
factor, so that the next run has a reserve.
"""
_NOTHING = AttemptUse(0, 0)


def job_stats(state: State, job: Job, so_far: Mapping[str, AttemptUse], now: float) -> JobStats:
    """Return the resources that the last attempt of the job requested and used. `so_far` has, by node, the
    usage until now of each gang member (the part of the job on one node) that still runs.
    """
    members = [member for member in job.members.values() if member.started_at is not None]
    uses = [_use_of(member, so_far.get(member.allocation.node, _NOTHING)) for member in members]
    seconds = [_run_s(member, now) for member in members]
    run_s = max(seconds, default=0.0)
    resources = [
        _cpu(members, uses, seconds),
        _memory(members, uses),
        *_gpus(state, members, uses),
        _time(job, run_s),
    ]
    if run_s < SHORTEST_S:
        resources = [
            ResourceStats(each.resource, each.unit, each.asked, each.used, each.percent) for each in resources
        ]
    return JobStats(
        job.id,
        job.label,
        job.name,
        job.user,
        job.state.value,
        job.attempt,
        len(members),
        round(run_s, 3),
        tuple(resources),
        " ".join(each.flags for each in resources if each.flags),
    )


def _use_of(member: Member, present: AttemptUse) -> AttemptUse:
    if member.ended_at is None:
        return present
    host = HostUse(member.cpu_s, 0, member.memory_mib or member.max_rss_mib)
    return AttemptUse(0, 0, member.use, host if host.cpu_s or host.peak_mib else None)


def _run_s(member: Member, now: float) -> float:
    return max(0.0, (now if member.ended_at is None else member.ended_at) - (member.started_at or 0.0))


def _cpu(members: Sequence[Member], uses: Sequence[AttemptUse], seconds: Sequence[float]) -> ResourceStats:
    asked = sum(member.allocation.cpu_milli for member in members) / 1_000
    known = [(use.host, each) for use, each in zip(uses, seconds, strict=True) if use.host is not None]
    if not known or not any(each for _, each in known):
        return ResourceStats("cpu", "CPUs", asked, None)
    used = sum(host.cpu_s / each for host, each in known if each)
    per_node = max(1, math.ceil(_MARGIN * used / len(members)))
    advice = flags = ""
    if used < _LOW * asked and per_node < asked / len(members):
        advice, flags = f"{used:.1f} CPUs were busy on average", f"--cpus {per_node}"
    elif used >= _FULL * asked:
        advice = "all CPUs were busy all the time: more CPUs may make the job faster"
    return ResourceStats("cpu", "CPUs", asked, round(used, 3), _percent(used, asked), advice, flags)


def _memory(members: Sequence[Member], uses: Sequence[AttemptUse]) -> ResourceStats:
    asked = max((member.allocation.memory_mib for member in members), default=0)
    peaks = [use.host.peak_mib for use in uses if use.host is not None]
    if not peaks:
        return ResourceStats("memory", "MiB", asked, None)
    used, advice, flags = max(peaks), "", ""
    enough = _rounded_mib(used * _MARGIN)
    if used < _LOW * asked and asked - enough >= 256:
        advice, flags = f"at most {memory(used)} were used", f"--memory {_size(enough)}"
    elif used >= _FULL * asked:
        advice, flags = "nearly all memory was used: the job may fail", f"--memory {_size(enough)}"
    return ResourceStats("memory", "MiB", asked, used, _percent(used, asked), advice, flags)


def _gpus(state: State, members: Sequence[Member], uses: Sequence[AttemptUse]) -> list[ResourceStats]:
    parts = [sum(hold.milli for hold in member.allocation.gpus) / WHOLE_GPU for member in members]
    asked = sum(parts)
    if not asked:
        return []
    known = [(use.use, part) for use, part in zip(uses, parts, strict=True) if use.use is not None]
    total_mib = _gpu_memory_mib(state, members)
    if not known:
        return [
            ResourceStats("gpu", "GPUs", asked, None),
            ResourceStats("gpu_memory", "MiB", total_mib, None),
        ]
    used = sum(use.mean / 100 * part for use, part in known)
    peak_mib = sum(use.peak_mib for use, _ in known)
    fewer = max(1, math.ceil(_MARGIN * used))
    advice = flags = ""
    if used < _LOW * asked and asked > 1 and fewer < asked:
        advice, flags = "the GPUs were mostly idle: fewer may be enough", f"--gpus {fewer}"
    elif used < _LOW * asked and asked == 1 and total_mib and peak_mib < _LOW * total_mib:
        advice, flags = "the GPU was mostly idle and half empty: a part of it may be enough", "--gpus 0.5"
    elif used < _LOW * asked:
        advice = "the GPUs were mostly idle: look at data loading and batch size"
    return [
        ResourceStats("gpu", "GPUs", asked, round(used, 3), _percent(used, asked), advice, flags),
        ResourceStats("gpu_memory", "MiB", total_mib, peak_mib, _percent(peak_mib, total_mib)),
        ResourceStats("energy", "Wh", None, round(sum(use.wh for use, _ in known), 3)),
    ]


def _gpu_memory_mib(state: State, members: Sequence[Member]) -> float | None:
    """Return the memory of all GPUs of the attempt in MiB; None if one of the GPUs no longer exists."""
    total = 0.0
    for member in members:
        node = state.nodes.get(member.allocation.node)
        known = {} if node is None else {gpu.uuid: gpu.memory_mib for gpu in node.facts.gpus}
        for hold in member.allocation.gpus:
            if hold.uuid not in known:
                return None
            total += known[hold.uuid] * hold.milli / WHOLE_GPU
    return total


def _time(job: Job, run_s: float) -> ResourceStats:
    if job.limit == NEVER:
        return ResourceStats("time", "s", None, round(run_s, 3))
    advice = flags = ""
    enough = max(60.0, math.ceil(run_s * 1.5 / 60) * 60.0)
    if job.state is JobState.COMPLETED and run_s < _LOW * job.limit and enough < job.limit:
        advice = f"the job ran {duration(run_s)}: with a shorter limit it may start earlier"
        flags = f"--time {math.ceil(enough / 60)}m"
    return ResourceStats("time", "s", job.limit, round(run_s, 3), _percent(run_s, job.limit), advice, flags)


def _percent(used: float, asked: float | None) -> float | None:
    return round(100 * used / asked, 1) if asked else None


def _rounded_mib(mib: float) -> int:
    """Return the amount in MiB, rounded up: below 2 GiB to a multiple of 128 MiB, otherwise to whole GiB."""
    step = 128 if mib < 2_048 else 1_024
    return math.ceil(mib / step) * step


def _size(mib: int) -> str:
    return f"{mib // 1_024}G" if mib % 1_024 == 0 else f"{mib}M"
