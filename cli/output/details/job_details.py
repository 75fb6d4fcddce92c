"""Lists all details of a job: its state, its nodes, its usage and its requested resources."""

from __future__ import annotations

import time

from cli.output.details.facts import Facts
from cli.output.details.spec_details import of_spec
from cli.output.details.wait_details import of_why
from cli.output.table_columns import clock, elapsed, exit_text
from wire.agent.reports import Checkpoint
from wire.api.jobs import Failure, Held, JobDetail, JobView, Moved, Preempted
from wire.api.service.reports import Foreseen
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU, JobState, Reason
from wire.text import counted, duration, memory, printable


def of_job(detail: JobDetail) -> Facts:
    """Return the details of a job: its state with the reason, its nodes, and the requested resources."""
    job = detail.job
    facts = [
        ("job", f"{job.label}  {job.name}"),
        ("user", job.user),
        ("state", job.state.value + (f" ({job.detail})" if job.detail else "")),
        ("why", of_why(detail.why) if not job.state.terminal else ""),
        (
            "starts",
            f"'corral explain {job.label}' shows when, and which changes would start it now" * _waits(job),
        ),
        ("exit", exit_text(job) if job.state.terminal else ""),
        ("failure", of_failure(job.failure)),
        ("last attempt", of_last_attempt(job)),
        ("submitted", clock(job.submitted_at)),
        ("started", clock(job.started_at) if job.started_at else ""),
        ("ended", clock(job.ended_at) if job.ended_at else ""),
        ("ran" if job.started_at else "waited", elapsed(job)),
        ("estimates", "\n".join(_foreseen(each, job) for each in detail.foreseen)),
        ("predicted", of_prediction(detail.predicted_s, job, detail.planned_s)),
        ("attempt", str(job.attempt or "")),
        ("restarts", str(job.restarts or "")),
        ("preempted", "\n".join(map(_preempted, detail.preemptions))),
        ("moves", "\n".join(map(_moved, detail.moves))),
        ("checkpoint", _checkpoint(detail.checkpoint)),
        ("profile", job.profile),
        ("service", job.service),
        ("placement", of_quality(job)),
        ("holds", "\n".join(map(_held, job.held))),
        ("gpu use", _gpu_use(job)),
        ("cpu use", _cpu_use(job)),
        ("gpus idle", f"since {clock(job.idle_since)}" if job.idle_since else ""),
        ("may be idle", _kept(job)),
    ]
    # Leave out the job's name and scheduler profile, because `facts` contains both already.
    return facts + [fact for fact in of_spec(detail.spec) if fact[0] not in ("name", "profile")]


_ESTIMATE_KINDS = {
    "promise": "reserved as the first waiting job",
    "latest": "at the latest",
    "likely": "likely",
}


def _foreseen(each: Foreseen, job: JobView) -> str:
    kind = _ESTIMATE_KINDS.get(each.kind, printable(each.kind))
    estimate = f"{clock(each.start)} {kind}, estimated at {clock(each.made_at)}"
    if job.started_at is None:
        return estimate
    off = job.started_at - each.start
    return f"{estimate}; it was {duration(abs(off))} {'later' if off > 0 else 'earlier'}"


def of_prediction(predicted_s: float | None, job: JobView, planned_s: float | None = None) -> str:
    """Return the predicted run time (`predicted_s`) and the time limit as text; empty if there is no
    prediction. If a running job exceeds its prediction, add the run time that backfill assumes now
    (`planned_s`).
    """
    if predicted_s is None:
        return ""
    limit = "no limit" if job.time_limit_s is None else f"{duration(job.time_limit_s)} at most"
    outlived = planned_s is not None and planned_s > predicted_s
    counted_on = f"; it runs longer, plans count on {duration(planned_s)}" if outlived else ""
    return f"{duration(predicted_s)}, as similar jobs did ({limit}){counted_on}"


def of_failure(failure: Failure | None) -> str:
    """Return the failure class, its sentence and its remedy as text; empty if `failure` is None."""
    if failure is None:
        return ""
    first = f"{failure.name}: {failure.sentence}" if failure.sentence else failure.name
    return f"{first}\n{failure.remedy}" if failure.remedy else first


def of_last_attempt(job: JobView) -> str:
    """Return a text with the time and the reason of the previous attempt's end; empty if the job had no
    previous attempt.
    """
    last = job.last
    if last is None:
        return ""
    word = "PREEMPTED" if last.reason is Reason.PREEMPTED else last.reason.value.replace("_", " ")
    first = f"attempt {last.attempt} ended {clock(last.at)}: {word}" + f" ({last.detail})" * bool(last.detail)
    return "\n".join(text for text in (first, of_failure(last.failure)) if text)


def _waits(job: JobView) -> bool:
    return job.state is JobState.QUEUED and job.reason is not Reason.HELD


def of_quality(job: JobView) -> str:
    """Return the score of the job's placement with its meaning, such as `150: one NUMA node, linked`. A
    placement on one cluster node has 100 points, on several nodes 50. All GPUs on one NUMA node add 30
    points, and NVLink between all GPUs adds 20 points.
    """
    if job.quality is None:
        return ""
    if len(job.held) > 1:
        return f"{job.quality}: {len(job.held)} nodes"
    words = {150: "one node", 130: "one node, not all linked", 120: "one node, several NUMA nodes"}
    if not any(held.gpus for held in job.held):
        return f"{job.quality}: one node"
    words[150], words[100] = "one NUMA node, linked", "one node, several NUMA nodes, not all linked"
    return f"{job.quality}: {words.get(job.quality, 'one node')}"


def line_of(job: JobView, *, limit: bool = False) -> str:
    """Return one line with the state of the job and the reason of this state. With `limit`, add the time
    limit.
    """
    reason = job.detail or job.reason.value.replace("_", " ")
    parts = [f"job {job.label}: {job.state.value}", reason]
    if limit:
        parts.append(f"time limit {duration(job.time_limit_s)}")
    return ", ".join(part for part in parts if part)


def _checkpoint(saved: Checkpoint | None) -> str:
    if saved is None:
        return ""
    return f"{saved.path}  {memory(-(-saved.size // (1 << 20)))}, {clock(saved.at)}"


def _preempted(each: Preempted) -> str:
    return f"{clock(each.at)} by {each.by}, attempt {each.attempt}: {each.gpu_hours:.1f} GPU-hours lost"


def _moved(each: Moved) -> str:
    status = "under way" if each.done_at is None else f"runs there since {clock(each.done_at)}"
    outcome = f"undone: {each.undone}" if each.undone else status
    way = f"{','.join(each.origin)} to {','.join(each.to)}"
    return f"{clock(each.at)} {way}, attempt {each.attempt}: {outcome}"


def _kept(job: JobView) -> str:
    """Return the time until which the GPUs of a running job may be idle (`corral job keep`); empty if this
    time has passed.
    """
    if job.kept_until is None or job.state.terminal or job.kept_until < time.time():
        return ""
    return f"until {clock(job.kept_until)}"


def _gpu_use(job: JobView) -> str:
    """Return a text with the GPU-hours of all ended attempts, and with the GPU load, the GPU memory and the
    energy of the last attempt.
    """
    running = job.state is JobState.RUNNING
    parts = []
    if job.gpu_hours:
        parts.append(f"{job.gpu_hours:.2f} GPU-hours{' in earlier attempts' if running else ''}")
    if job.use is not None:
        busy = f"{job.use.mean:.0f}% busy on average, {job.use.p95}% at the 95th percentile"
        parts.append(f"{'so far ' if running else ''}{busy}")
        parts.append(f"{memory(job.use.peak_mib)} at most, {job.use.wh:.1f} Wh")
    return ", ".join(parts)


def _cpu_use(job: JobView) -> str:
    """Return a text with the CPU time and the memory of the last attempt; empty without measurements."""
    use = job.host_use
    if use is None:
        return ""
    now = f"{memory(use.memory_mib)} now, " if job.state is JobState.RUNNING else ""
    return f"{use.cpu_s / 3_600:.2f} CPU-hours, memory {now}{memory(use.peak_mib)} at most"


def _held(held: Held) -> str:
    whole = [gpu.number for gpu in held.gpus if gpu.milli == WHOLE_GPU]
    parts = [
        f"{gpus_text(gpu.milli / WHOLE_GPU)} of {gpu.number}" for gpu in held.gpus if gpu.milli < WHOLE_GPU
    ]
    gpus = f"GPU {', '.join(whole + parts)}; " if held.gpus else ""
    scratch = f", {memory(held.scratch_mib)} of scratch" if held.scratch_mib else ""
    return f"{held.node}: {gpus}{counted(held.cpu_milli / 1000, 'CPU')}, {memory(held.memory_mib)}{scratch}"
