"""Lists all details of one job or one node as pairs of heading and value."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence

from cli.output.table_columns import clock, cores, elapsed, exit_text
from cli.spec.job_options import OPTIONS
from wire.agent.reports import Checkpoint, NumaFacts
from wire.api.forecasts import Explanation
from wire.api.jobs import Failure, Held, JobDetail, JobView, Moved, Preempted
from wire.api.nodes import NodeView, TimedDrainView
from wire.api.reasons import Ousted, Why
from wire.api.service.reports import Foreseen
from wire.job.gangs import MemberFailure
from wire.job.spec import JobSpec, gpus_text, qos_class
from wire.job.start_conditions import DEFAULT_RESTART, Restart, RestartWhen
from wire.names import WHOLE_GPU, JobState, Reason, priority_name
from wire.text import counted, decimal, duration, memory, printable

Facts = list[tuple[str, str]]
SHOWN_VICTIMS = 8
SHOWN = 400
"""The most characters of a job's command that are shown. -o json shows the whole command."""


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
    # Leave out the job's name and scheduler profile, because earlier lines show them already.
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
    """Return the predicted run time (`predicted_s`) and the time limit as text; empty without a prediction.
    If a running job exceeds its prediction, add the run time that backfill assumes now (`planned_s`).
    """
    if predicted_s is None:
        return ""
    limit = "no limit" if job.time_limit_s is None else f"{duration(job.time_limit_s)} at most"
    outlived = planned_s is not None and planned_s > predicted_s
    counted_on = f"; it runs longer, plans count on {duration(planned_s)}" if outlived else ""
    return f"{duration(predicted_s)}, as similar jobs did ({limit}){counted_on}"


def of_failure(failure: Failure | None) -> str:
    """Return the class of a failure with its remedy; empty without a failure."""
    if failure is None:
        return ""
    first = f"{failure.name}: {failure.sentence}" if failure.sentence else failure.name
    return f"{first}\n{failure.remedy}" if failure.remedy else first


def of_last_attempt(job: JobView) -> str:
    """Return a text about the end of the previous attempt; empty for the first attempt."""
    last = job.last
    if last is None:
        return ""
    word = "PREEMPTED" if last.reason is Reason.PREEMPTED else last.reason.value.replace("_", " ")
    first = f"attempt {last.attempt} ended {clock(last.at)}: {word}" + f" ({last.detail})" * bool(last.detail)
    return "\n".join(text for text in (first, of_failure(last.failure)) if text)


def _waits(job: JobView) -> bool:
    return job.state is JobState.QUEUED and job.reason is not Reason.HELD


def of_spec(spec: JobSpec) -> Facts:
    """Return the requested resources and options of a job, each with its heading. Options without a line of
    their own follow at the end, if the table of job options has a heading for them.
    """
    command = shlex.join(spec.command)
    models = f" of {' or '.join(spec.gpu_models)}" if spec.gpu_models else ""
    return [
        ("name", spec.name),
        ("command", command if len(command) <= SHOWN else command[:SHOWN] + "…"),
        ("directory", spec.workdir or ""),
        ("project", spec.project),
        ("queue", spec.queue),
        ("priority", priority_name(spec.priority)),
        ("relaxes", of_relax(spec)),
        ("gpus", gpus_text(spec.gpus) + models),
        ("of each gpu", str(spec.gpu or "")),
        ("nodes lie in", str(spec.topology or "")),
        ("nodes", str(spec.nodes) if spec.nodes else "as few as the GPUs need"),
        ("gang", _gang(spec)),
        ("tasks", f"{spec.tasks_per_node} per node" * (spec.tasks_per_node > 1)),
        ("cpus", _amount(spec, "cpu_milli", cores, spec.cpu_limit_milli)),
        ("memory", _amount(spec, "memory_mib", memory, spec.memory_limit_mib)),
        ("scratch", f"{memory(spec.scratch_mib)} per node" if spec.scratch_mib else ""),
        ("qos", qos_class(spec)),
        ("only nodes", _lines(_pairs(spec.selector), *spec.affinity)),
        ("runs", _lines(*spec.company)),
        ("licences", _lines(*(f"{count} of {name}" for name, count in spec.licences.items()))),
        ("environment", _pairs(spec.env)),
        (
            "logs",
            "stdout and stderr in one log" if spec.merge_output else "stdout and stderr in separate logs",
        ),
        ("runs once", "on the first node" if spec.batch else ""),
        ("begin", clock(spec.begin_at) if spec.begin_at else ""),
        ("deadline", clock(spec.deadline_at) if spec.deadline_at else ""),
        ("after", of_after(spec)),
        (
            "gives up",
            f"after {duration(spec.start_within_s)} without free resources" if spec.start_within_s else "",
        ),
        ("restart", of_restart(spec.restart)),
        ("node lost", _node_lost(spec)),
        ("time limit", duration(spec.time_limit_s) if spec.time_limit_s else "none"),
        ("grace", duration(spec.grace_s)),
        ("saves", _saves(spec)),
        ("preemptible", _preemptible(spec)),
        (
            "warned",
            f"{duration(spec.warn_s)} before the limit, by {spec.warn_signal}" * bool(spec.warn_signal),
        ),
        ("liveness", _liveness(spec)),
        ("held", "yes" if spec.hold else ""),
        *((option.title, _lines(*option.texts(spec))) for option in OPTIONS.values() if option.title),
    ]


def _liveness(spec: JobSpec) -> str:
    """Return the liveness check in words; empty if the job has none."""
    check = spec.health
    if check is None:
        return ""
    what = check.url or shlex.join(check.command)
    if check.file:
        what = f"{check.file} changes within {duration(check.file_age_s)}"
    when = f"every {decimal(check.every_s)}s, {decimal(check.timeout_s)}s each, not in the first "
    when += f"{decimal(check.start_s)}s"
    return f"{what}\n{when}; after {counted(check.failures, 'failure')}: {check.action.value}"


def _amount(spec: JobSpec, field: str, as_text: Callable[[int], str], limit: int | None) -> str:
    """Return the requested CPUs or memory per node (`field`) as text, with the limit up to which the job may
    use idle resources. If the user did not request an amount, add the source of the default value.
    """
    value, source = getattr(spec, field), spec.by_default.get(field, "")
    if not value:
        return "the default of the cluster"
    default = f" (default: {printable(source)})" if source else ""
    return f"{as_text(value)} per node{_at_most(limit, as_text)}{default}"


def _node_lost(spec: JobSpec) -> str:
    if spec.on_node_lost is None:
        return ""
    lease = f", which is {duration(spec.lease_s)}" * (spec.lease_s is not None)
    return spec.on_node_lost.value + lease


def of_after(spec: JobSpec) -> str:
    """Return the conditions of --after and the other --after-... options, for which the job waits."""
    if not spec.after:
        return ""
    listed = ", ".join(f"{each.until.value} {printable(each.path or each.job)}" for each in spec.after)
    some = "" if spec.after_count is None else f"{spec.after_count} of "
    patience = f"; for {duration(spec.after_within_s)} at most" if spec.after_within_s else ""
    return some + listed + patience


def of_relax(spec: JobSpec) -> str:
    return f"{', '.join(spec.relax)} after {duration(spec.relax_after_s)} in the queue" if spec.relax else ""


def of_restart(restart: Restart) -> str:
    """Return the restart policy in words; empty if the job has the default policy."""
    if restart == DEFAULT_RESTART:
        return ""
    if restart.when is RestartWhen.NEVER:
        return "never"
    times = "any number of times" if restart.limit is None else counted(restart.limit, "time")
    codes = f", only after exit code {', '.join(map(str, restart.codes))}" if restart.codes else ""
    first, most = duration(restart.delay_s), duration(restart.delay_most_s)
    wait = f"{first} to {most}" if restart.delay_most_s > restart.delay_s else first
    return f"{restart.when.value}, {times}, after {wait}{codes}"


def _at_most(limit: int | None, as_text: Callable[[int], str]) -> str:
    return "" if limit is None else f", {as_text(limit)} at most"


def of_node(node: NodeView) -> Facts:
    """Return the details of a node, without its GPUs."""
    return [
        ("node", node.name),
        ("state", node.state_word + (f" ({node.why})" if node.why else "")),
        ("since", clock(node.since) if node.since else ""),
        ("drain", "" if node.drain is None else "\n".join(drain_lines(node.drain))),
        ("cpus", f"{cores(node.cpu_free_milli)} of {cores(node.cpu_milli)} free"),
        ("memory", f"{memory(node.memory_free_mib)} of {memory(node.memory_mib)} free"),
        ("scratch", f"{memory(node.scratch_free_mib)} of {memory(node.scratch_mib)} free"),
        ("numa nodes", "\n".join(map(_numa, node.numa)) or str(node.numa_nodes)),
        ("driver", node.driver + (f", CUDA {node.cuda}" if node.cuda else "")),
        ("switches", " > ".join(map(printable, node.switches))),
        ("labels", _pairs(node.labels)),
        ("datasets", _lines(*(f"{each.name}: read until {clock(each.at)}" for each in node.datasets))),
        ("taints", _lines(*node.taints)),
        ("jobs", ", ".join(node.job_labels or map(str, node.jobs))),
        ("agent", node.version),
        *((f"jobs: {topic}", printable(text)) for topic, text in node.handling.items()),
    ]


def drain_lines(drain: TimedDrainView) -> list[str]:
    """Return lines about a timed drain: the time by which the node is to be empty, and one line for each job
    on the node.
    """
    lines = [f"to be empty by {clock(drain.empty_by)}{f' ({printable(drain.why)})' if drain.why else ''}"]
    for each in drain.jobs:
        job = f"job {each.label} ({printable(each.name, 40)}, {printable(each.user, 40)})"
        then = {
            "ends": "ends before, at its time limit",
            "moved": "is moved to other nodes; it is told to stop",
            "ended": "is ended; it is told to stop",
        }.get(each.how, each.how)
        lines.append(f"{job} {then} at {clock(each.at)}" if each.how != "ends" else f"{job} {then}")
    if any(each.how == "moved" for each in drain.jobs):
        lines.append(
            "moved jobs continue from their checkpoints; those without a checkpoint start from the beginning"
        )
    return lines


def _numa(numa: NumaFacts) -> str:
    parts = [f"{numa.node}: CPUs {numa.cpus}"]
    if numa.memory_mib:
        parts.append(memory(numa.memory_mib))
    if numa.distances:
        parts.append(f"distances {' '.join(map(str, numa.distances))}")
    return ", ".join(parts)


def of_quality(job: JobView) -> str:
    """Return the score of the job's placement as text. GPUs on one cluster node score 100 points, GPUs on
    several nodes 50. If all GPUs are on one NUMA node, 30 points are added. If NVLink connects all GPUs, 20
    points are added.
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
    """Return one line with the state of the job and its reason; with `limit` also with the time limit."""
    reason = job.detail or job.reason.value.replace("_", " ")
    parts = [f"job {job.label}: {job.state.value}", reason]
    if limit:
        parts.append(f"time limit {duration(job.time_limit_s)}")
    return ", ".join(part for part in parts if part)


def of_why(why: Why) -> str:
    """Return the reason why a job waits, its position in the queue, and how many nodes each filter
    rejects.
    """
    lines = [why.sentence, *map(printable, why.notes)]
    if why.position is not None:
        lines.append(f"position {why.position} in the queue")
    if why.receipt:
        lines.append(f"{sum(each.points for each in why.receipt):.3f} points:")
        lines += [
            f"  {each.points:10.3f} = {each.factor:.4f} × {each.weight:g} {each.name.replace('_', ' ')}"
            + (f" ({each.note})" if each.note else "")
            for each in why.receipt
        ]
    lines += [
        f"{counted(loss.lost, 'node')}: {text}"
        for loss in why.losses
        # With only one cause, leave out the list of nodes, because the sentence already names them.
        if not why.sentence.endswith(text := f"{loss.message} ({', '.join(loss.examples)})")
    ]
    return "\n".join(line for line in lines if line)


def of_node_scores(why: Why) -> str:
    """Return a line for each of the best nodes of a waiting job, with the points of the node in total and
    from each scorer.
    """
    lines = [] if not why.nodes or why.nodes[0].fits else ["it fits on no node now; these could hold it:"]
    lines += [
        f"{each.node}: {each.points:.1f} points = "
        + " + ".join(f"{part.factor:.2f} × {part.weight:g} {part.name}" for part in each.parts)
        for each in why.nodes
    ]
    return "\n".join(lines)


def _saves(spec: JobSpec) -> str:
    """Return a text about how the job saves its state before it is stopped; empty if the job does not save
    its state.
    """
    ways = [
        shlex.join(spec.checkpoint_command),
        spec.checkpoint_signal and f"signal {spec.checkpoint_signal}",
    ]
    ways_text = " and ".join(filter(None, ways))
    return f"{ways_text}, within {duration(spec.checkpoint_s)}" if ways_text else ""


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


def _gang(spec: JobSpec) -> str:
    """Return a text with the fewest nodes on which the job starts, and the effect of a failure on one
    node.
    """
    gang, parts = spec.gang, []
    if gang.min_nodes is not None:
        wait = f" after waiting {duration(gang.assembly_s)} for all" if gang.assembly_s else ""
        parts.append(f"starts on {gang.min_nodes} or more{wait}")
    if gang.elastic:
        parts.append("elastic")
    if gang.mixed_models:
        parts.append("GPU models may differ")
    if gang.on_failure is not MemberFailure.FAIL:
        parts.append(
            {MemberFailure.CONTINUE: "continues", MemberFailure.RESTART: "restarts"}[gang.on_failure]
        )
        parts[-1] += " if one gang member fails"
    return "; ".join(parts)


def _preemptible(spec: JobSpec) -> str:
    """Return a text that says when the job may be preempted: "no" for never, empty for always."""
    if not spec.preemptible:
        return "no"
    return f"after {duration(spec.min_runtime_s)}" if spec.min_runtime_s else ""


def of_ahead(why: Why) -> str:
    """Return a text with the first few jobs ahead of a waiting job in the queue, and the number of further
    jobs ahead.
    """
    lines = [f"job {each.label} ({printable(each.user)}): {printable(each.wants)}" for each in why.ahead]
    more = (why.position or 1) - 1 - len(why.ahead)
    return "\n".join(lines + ([f"and {more} more"] if more > 0 and lines else []))


def of_preemption(answer: Explanation) -> str:
    """Return lines about preemption for a waiting job: why it preempts no job now, and which running jobs it
    will preempt later.
    """
    lines = [f"no job now: {printable(answer.no_preemption, SHOWN)}"] if answer.no_preemption else []
    if answer.makes_room and answer.victims:
        lines.append(_victims_text(answer.victims))
    return "\n".join(lines)


def _victims_text(victims: Sequence[Ousted]) -> str:
    """Return a text with the first few victims (jobs that will be preempted), the time of the preemption, and
    the GPU-hours that all victims lose.
    """
    lost = sum(each.gpu_hours for each in victims)
    names = ", ".join(each.label for each in victims[:SHOWN_VICTIMS])
    more = f" and {len(victims) - SHOWN_VICTIMS} more" if len(victims) > SHOWN_VICTIMS else ""
    at = victims[0].at
    when = f" at {clock(at)}" if at is not None else " in its turn"
    return (
        f"job{'s' * (len(victims) > 1)} {names}{more}{when}, so that it can start: {lost:.1f} GPU-hours lost"
    )


def _kept(job: JobView) -> str:
    """Return the time until which the GPUs of a running job may be idle; empty if this is no longer so."""
    if job.kept_until is None or job.state.terminal or job.kept_until < time.time():
        return ""
    return f"until {clock(job.kept_until)}"


def _gpu_use(job: JobView) -> str:
    """Return the GPU-hours of all ended attempts, and the GPU load of the last attempt."""
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
    """Return the CPU time and the memory of the last attempt."""
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


def _lines(*texts: object) -> str:
    return "\n".join(printable(text, SHOWN) for each in texts for text in str(each).splitlines() if text)


def _pairs(pairs: Mapping[str, str]) -> str:
    # Replace newlines, because a newline in a value would look like the start of another variable.
    return "\n".join(f"{key}={value}".replace("\n", "\ufffd") for key, value in pairs.items())
