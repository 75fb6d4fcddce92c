"""Lists the conditions that an operator should check: nodes and GPUs out of service, running jobs that are
idle or do not report, failed jobs, jobs near their time limits, and jobs that wait for long or for a quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tui.data.lists.filter import exact_filter
from tui.pulse.panel import Jump
from wire.api.jobs import JobView
from wire.api.nodes import NodeView
from wire.names import GpuHealth, NodeState
from wire.text import duration, printable

FAILED_FOR_S: Final = 3_600.0
"""A failed job counts in the alarms for this many seconds after its end."""
NEAR_LIMIT: Final = 0.9
"""A running job is near its time limit after this fraction of the limit."""


@dataclass(frozen=True)
class Alarm:
    """A condition that an operator should check.

    `style` is "bad" for a fault and "warn" for a condition that may become a fault. `jump` is the job, the
    node or the view that Enter on the alarm opens.
    """

    style: str
    text: str
    jump: Jump
    since: float | None = None


def alarms(
    nodes: Iterable[NodeView],
    running: Mapping[int, JobView],
    failed: Mapping[int, float],
    waiting_long: int,
    now: float,
    at_quota: int = 0,
    controller: Iterable[str] = (),
) -> list[Alarm]:
    """Return all alarms: first the faults, then the other alarms. In both groups, the newest comes first, and
    alarms without a time come last.

    `running` has the jobs that hold nodes, by job id. `failed` has the time at which each failed job ended.
    `waiting_long` is the number of jobs that have waited much longer than is usual, and `at_quota` the number
    of jobs that wait for a quota. `controller` has sentences about the controller itself.

    Cost: one step for each GPU and each running job.
    """
    found = [
        Alarm("bad", f"controller: {printable(each, 120)}", Jump("view", "events")) for each in controller
    ]
    found += [alarm for node in nodes for alarm in _of_node(node)]
    found += [alarm for job in running.values() for alarm in _of_job(job)]
    found += _of_all_jobs(running, failed, waiting_long, now)
    if at_quota:
        text = f"{_jobs(at_quota)} wait{'s' * (at_quota == 1)} for a quota"
        found.append(Alarm("warn", text, Jump("filter", "why:^quota")))
    return sorted(found, key=lambda alarm: (alarm.style != "bad", -(alarm.since or 0.0)))


def _of_node(node: NodeView) -> Iterator[Alarm]:
    name = printable(node.name, 24)
    why = f": {printable(node.why, 80)}" if node.why else ""
    if node.state.away:
        yield Alarm("bad", f"{name} is {node.state.value}{why}", Jump("node", node.name), node.since)
        return
    if node.state is NodeState.DRAINED or node.drain is not None:
        yield Alarm("warn", f"{name} is {node.state_word}{why}", Jump("node", node.name), node.since)
    for gpu in node.gpus:
        if gpu.health is not GpuHealth.OK:
            on_it = f", job {' '.join(gpu.job_labels or map(str, gpu.jobs))} on it" if gpu.jobs else ""
            text = f"{name}:{gpu.number} {gpu.health.value} {printable(gpu.why, 60)}{on_it}"
            yield Alarm("bad", text, Jump("node", node.name))


def _of_job(job: JobView) -> Iterator[Alarm]:
    label, user = printable(job.label), printable(job.user, 16)
    if job.silent:
        text = f"job {label} ({user}): no report from {printable(', '.join(job.silent), 40)}"
        yield Alarm("bad", text, Jump("job", job.id))
    if job.idle_since is not None:
        text = f"job {label} ({user}): its {job.gpus:g} GPUs are idle"
        yield Alarm("warn", text, Jump("job", job.id), job.idle_since)


def _of_all_jobs(
    running: Mapping[int, JobView], failed: Mapping[int, float], waiting_long: int, now: float
) -> Iterator[Alarm]:
    recent = [at for at in failed.values() if at > now - FAILED_FOR_S]
    if recent:
        text = f"{_jobs(len(recent))} failed in the last {duration(FAILED_FOR_S)}"
        yield Alarm("warn", text, Jump("filter", "state:failed"), max(recent))
    near = [
        job
        for job in running.values()
        if job.time_limit_s and job.started_at and now - job.started_at > NEAR_LIMIT * job.time_limit_s
    ]
    if len(near) == 1:
        left = near[0].time_limit_s + near[0].started_at - now  # type: ignore[operator]
        text = f"job {printable(near[0].label)}: {duration(max(0.0, left))} until its time limit"
        yield Alarm("warn", text, Jump("job", near[0].id))
    elif near:
        text = f"{_jobs(len(near))} have used {NEAR_LIMIT:.0%} of their time limits"
        labels = exact_filter(*(job.label for job in near[:50]))
        yield Alarm("warn", text, Jump("filter", f"id:{labels}"))
    if waiting_long:
        text = f"{_jobs(waiting_long)} waited much longer than usual"
        yield Alarm("warn", text, Jump("filter", "waits:long"))


def _jobs(number: int) -> str:
    return f"{number} job{'' if number == 1 else 's'}"
