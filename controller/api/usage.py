"""What jobs made of the GPUs they held, by user, project, queue or job, in a window of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.core.inputs import Refusal
from controller.core.jobs import Job
from controller.core.records import job_of
from wire.api.reports import StintList, StintView, UsageList, UsageView

PAGE = 1_000
BY: dict[str, Callable[[Job], str]] = {
    "user": lambda job: job.user,
    "project": lambda job: job.spec.project,
    "queue": lambda job: job.spec.queue,
    "job": lambda job: job.label,
}


@dataclass(slots=True)
class Sum:
    """What was added up so far; `measured_s` are the GPU-seconds of which the utilisation is known."""

    jobs: int = 0
    gpu_s: float = 0.0
    measured_s: float = 0.0
    busy_s: float = 0.0
    p95: int = 0
    peak_mib: int = 0
    wh: float = 0.0
    cpu_s: float = 0.0

    def add(self, job: Job, since: float, until: float) -> None:
        """A job's part of the window; figures of a whole attempt count by how much of it lies there."""
        self.jobs += 1
        if since <= job.submitted_at < until:
            self.gpu_s += job.spent_gpu_s
            self.wh += job.spent_wh
        for member in job.members.values():
            seconds = member.gpu_s(since, until)
            self.gpu_s += seconds
            self.cpu_s += member.cpu_s
            if member.use is not None and seconds:
                self.measured_s += seconds
                self.busy_s += seconds * member.use.mean / 100
                self.p95 = max(self.p95, member.use.p95)
                self.peak_mib = max(self.peak_mib, member.use.peak_mib)
                self.wh += member.use.wh * seconds / member.gpu_s(0.0, until)

    def view(self, name: str) -> UsageView:
        """As the API shows it."""
        mean = round(100 * self.busy_s / self.measured_s, 1) if self.measured_s else None
        return UsageView(
            name,
            self.jobs,
            round(self.gpu_s / 3_600, 4),
            mean,
            self.p95 if self.measured_s else None,
            self.peak_mib,
            round(self.wh, 2),
            round(self.cpu_s / 3_600, 4),
        )


async def show(call: Call) -> UsageList:
    """GPU-hours, utilisation, memory and energy, the greatest first."""
    since, until = _window(call)
    key = BY[call.query["by"][0] if call.query["by"] else "user"]
    sums: dict[str, Sum] = {}
    for job in await _jobs(call, since):
        if (job.started_at is not None and job.started_at < until) or job.spent_gpu_s:
            sums.setdefault(key(job), Sum()).add(job, since, until)
    views = [each.view(name) for name, each in sums.items()]
    ordered = sorted(views, key=lambda each: (-each.gpu_hours, each.name))
    return UsageList(tuple(ordered), since, until)


def _window(call: Call) -> tuple[float, float]:
    since, until = float(call.query["since"]), call.query["until"]
    until = call.daemon.now() if until is None else float(until)
    if since >= until:
        raise Rejected(Refusal("invalid", "must be before until", "since"))
    return since, until


async def off_queue(call: Call) -> StintList:
    """Who worked on GPUs past the queue, since when and until when."""
    since, until = _window(call)
    await call.daemon.settled()
    state = call.daemon.state
    index = {gpu.uuid: gpu.index for node in state.nodes for gpu in node.facts.gpus}
    views = []
    for stint in state.offqueue.within(since, until):
        hours = stint.gpu_hours(since, until)
        views.append(
            StintView(
                stint.user,
                stint.node,
                index.get(stint.uuid, -1),
                stint.uuid,
                stint.pid,
                stint.command,
                stint.since,
                stint.until,
                round(hours, 4),
                round(hours * stint.rate, 4),
            )
        )
    return StintList(tuple(views), since, until)


async def _jobs(call: Call, since: float) -> Iterable[Job]:
    """Those that live, and those that ended in the window: from the store, which forgets none."""
    daemon = call.daemon
    await daemon.settled()
    found = {job.id: replace(job) for job in daemon.state.live()}
    after = 0
    while True:
        rows = await daemon.read(partial(daemon.store.ended, since, after, PAGE))
        found.update((row.id, job_of(row)) for row in rows)
        if len(rows) < PAGE:
            return found.values()
        after = rows[-1].id
