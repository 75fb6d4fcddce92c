"""Makes notices from events: plain sentences with the next step for the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from controller.core.cluster.node import JUST_STARTED
from controller.core.lifecycle.failure_classes import USER_CODE, FailureRule, rule_of
from controller.core.model.events.attempts import (
    EndWarned,
    HealthChanged,
    IdleNoted,
    JobEnded,
    JobPlaced,
    JobPreempted,
    JobRequeued,
)
from controller.core.model.events.controller import PluginFailed
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import GpuHealthRecorded, NodeWentAway, NodeWentDown
from controller.core.model.events.queued import DeadlineAtRisk, DependencyDecided, WaitAlarmed
from controller.core.model.events.tenants import BudgetReached, OffQueueProcessStarted
from controller.core.model.job import Job
from controller.core.state.state import State
from controller.notify.messages import Notice
from wire.names import GpuHealth, JobState, Reason
from wire.text import duration, printable

CAUSES: Mapping[Reason, str] = {
    Reason.TIME_LIMIT: "it reached its time limit",
    Reason.OUT_OF_MEMORY: "it used more memory than it requested",
    Reason.NODE_LOST: "its node was lost",
    Reason.SUPERVISOR_LOST: "its supervisor process was lost",
    Reason.LAUNCH_FAILED: "it could not be started",
    Reason.GPU_FAILED: "a GPU failed",
    Reason.GPU_ERROR: "it caused a GPU error",
    Reason.SCRATCH_EXCEEDED: "it used more scratch space than it requested",
    Reason.DEPENDENCY: "a dependency can never be met",
    Reason.DEADLINE: "it cannot meet its deadline any more",
    Reason.START_TIMEOUT: "it waited too long for a start",
    Reason.IDLE: "its GPUs were idle for too long",
    Reason.EVICTED: "it was evicted from its node",
    Reason.DRAINED: "its node was drained",
    Reason.UNHEALTHY: "its health checks failed",
    Reason.MEMBER_FAILED: "a part of it on another node failed",
}
"""A clause for each reason of an end that no user has ordered. For an end with another reason, the notice
names the exit code or the signal.
"""

REMEDIES: Mapping[Reason, str] = {
    Reason.TIME_LIMIT: "Submit it again with a longer --time, or let it save checkpoints.",
    Reason.OUT_OF_MEMORY: "Submit it again with a larger --memory.",
    Reason.SCRATCH_EXCEEDED: "Submit it again with a larger --scratch.",
    Reason.DEPENDENCY: "Look at the job on which it depends, and submit both again.",
    Reason.IDLE: "Check in its output whether it uses the GPUs, and request none if it does not.",
}


def words_of(event: Event) -> tuple[str, ...]:
    """Return the kinds of notices (such as mine.failed) that an event may cause; empty for an event without
    notices.
    """
    return _WORDS_OF.get(type(event), ())


def notices_of(event: Event, state: State, failures: Iterable[FailureRule] = ()) -> Iterator[Notice]:
    """Yield the notices about an event. `state` is the state after all events of the commit, and `failures`
    are the rules of the site's failure classes.
    """
    if isinstance(event, JobEnded):
        yield from _ended(event, state, failures)
        return
    make = _MAKERS.get(type(event))
    if make is not None:
        yield from make(event, state)


def job_notice(word: str, at: float, job: Job, subject: str, text: str, next_step: str) -> Notice:
    """Return a notice about a job. In the texts, {job} stands for the job's display id (17 or 12_3), {name}
    for its name.
    """
    names = {"job": job.label, "name": printable(job.name, 60)}
    spec = job.spec
    return Notice(
        word,
        at,
        subject.format(**names),
        text.format(**names),
        next_step.format(**names),
        job.label,
        job.user,
        spec.project,
        spec.queue,
        ", ".join(job.members),
    )


def _of_job(word: str, event: Any, state: State, subject: str, text: str, next_step: str) -> Iterator[Notice]:
    job = state.jobs.get(event.job)
    if job is not None:
        yield job_notice(word, event.at, job, subject, _plain(text), next_step)


def _plain(text: str) -> str:
    """Return the text in one line without control characters, cut to 1,000 characters."""
    return printable(text, 1_000)


def _escaped(text: str) -> str:
    """Return a text from a user with escaped braces, so that str.format() does not change the text."""
    return printable(text).replace("{", "{{").replace("}", "}}")


def _placed(event: JobPlaced, state: State) -> Iterator[Notice]:
    nodes = ", ".join(each.node for each in event.allocations)
    job = state.jobs.get(event.job)
    waited = duration(event.at - job.ready_at) if job is not None else "-"
    text = f"Job {{job}} ({{name}}) starts on {nodes} after it waited {waited}."
    yield from _of_job(
        "mine.started", event, state, "job {job} started", text, "Follow its output: corral logs -f {job}"
    )


def _ended(event: JobEnded, state: State, failures: Iterable[FailureRule]) -> Iterator[Notice]:
    job = state.jobs.get(event.job)
    if job is None:
        return
    failed = event.state is JobState.FAILED
    done = {JobState.COMPLETED: "completed", JobState.CANCELLED: "was cancelled"}.get(event.state, "failed")
    where = f" on {', '.join(job.members)}" if job.members else ""
    ran = f" after {duration(event.at - job.started_at)}" if job.started_at is not None else ""
    text = f"Job {{job}} ({{name}}) {done}{where}{ran}"
    cause = _cause(event) if event.state is not JobState.COMPLETED else ""
    text += f": {cause}." if cause else "."
    remedy = REMEDIES.get(event.reason, "") if failed else ""
    found = rule_of(job.failure, failures) if failed and job.failure and not remedy else None
    if found is not None and found is not USER_CODE:
        text += f" By its output, {_escaped(found.sentence)}."
        remedy = _escaped(found.remedy).replace("JOB", "{job}")
    looked = "corral logs {job}" if job.members else "corral job show {job}"
    next_step = f"{remedy} See more: {looked}".strip()
    for word in ("mine.failed", "mine.ended") if failed else ("mine.ended",):
        yield job_notice(word, event.at, job, f"job {{job}} {done}", _plain(text), next_step)


def _cause(event: JobEnded) -> str:
    """Return the reason why a job ended, as a clause. If a user has ended the job, the clause is the detail
    of the event, such as "cancelled by ann".
    """
    if event.reason is Reason.USER:
        return _escaped(event.detail)
    clause = CAUSES.get(event.reason)
    if clause is not None:
        return f"{clause} ({_escaped(event.detail)})" if event.detail else clause
    if event.signal is not None:
        return f"its program was ended by signal {event.signal}"
    if event.code:
        return f"its program ended with exit code {event.code}"
    return _escaped(event.detail) or event.reason.value.replace("_", " ")


def _requeued(event: JobRequeued, state: State) -> Iterator[Notice]:
    cause = CAUSES.get(event.reason) or _escaped(event.detail) or event.reason.value.replace("_", " ")
    text = f"Job {{job}} ({{name}}) waits in the queue again: {cause}."
    yield from _of_job(
        "mine.requeued",
        event,
        state,
        "job {job} was queued again",
        text,
        "See when it starts: corral why {job}",
    )


def _preempted(event: JobPreempted, state: State) -> Iterator[Notice]:
    text = (
        f"Job {{job}} ({{name}}) was preempted by {_escaped(event.by)}; "
        f"{event.gpu_hours:.1f} GPU-hours of unsaved work are lost. "
        "In most cases the job is queued again."
    )
    yield from _of_job(
        "mine.preempted",
        event,
        state,
        "job {job} was preempted",
        text,
        "Checkpoints keep the work of a preempted job. See more: corral job show {job}",
    )


def _warned(event: EndWarned, state: State) -> Iterator[Notice]:
    left = duration(max(0.0, event.ends_at - event.at))
    why = f" ({_escaped(event.detail)})" if event.detail else f" ({event.reason.value.replace('_', ' ')})"
    if event.reason is Reason.PREEMPTED:
        text = f"Job {{job}} ({{name}}) may be preempted in {left}{why}."
        step = "Save its work now, or let it save checkpoints. See more: corral why {job}"
        yield from _of_job("mine.warned", event, state, f"job {{job}} may end in {left}", text, step)
        return
    yield from _of_job(
        "mine.warned",
        event,
        state,
        f"job {{job}} ends in {left}",
        f"Job {{job}} ({{name}}) will be told to stop in {left}{why}.",
        "Save its work now, or ask for more time: corral job set {job} --time TIME",
    )


def _idle(event: IdleNoted, state: State) -> Iterator[Notice]:
    text = f"All GPUs of job {{job}} ({{name}}) have been idle for {duration(event.at - event.since)}."
    if event.until is not None:
        text += f" The job is ended in {duration(event.until - event.at)} if they stay idle."
    yield from _of_job(
        "idle",
        event,
        state,
        "the GPUs of job {job} are idle",
        text,
        "Look at its output: corral logs {job}. Free its GPUs: corral cancel {job}. Or keep the job: "
        "corral job keep {job} --for 2h",
    )


def _unhealthy(event: HealthChanged, state: State) -> Iterator[Notice]:
    job = state.jobs.get(event.job)
    if event.healthy or job is None:
        return
    why = f": {_escaped(event.why)}" if event.why else ""
    if job.replica is None:
        text = f"The health checks of job {{job}} ({{name}}) fail{why}."
        step = "Look at its output: corral logs {job}"
        yield from _of_job("mine.unhealthy", event, state, "job {job} is unhealthy", text, step)
        return
    service = printable(job.replica.service)
    yield from _of_job(
        "service.unhealthy",
        event,
        state,
        f"service {_escaped(service)}: replica {job.replica.number} is unhealthy",
        f"Replica {job.replica.number} of service {_escaped(service)} (job {{job}}) is unhealthy{why}.",
        f"See its replicas: corral service show {_escaped(service)}. See its output: corral logs {{job}}",
    )


def _late(event: WaitAlarmed, state: State) -> Iterator[Notice]:
    text = (
        f"Job {{job}} ({{name}}) has waited for {duration(event.waited_s)}; half of the jobs of its queue "
        f"with a similar number of GPUs started within {duration(event.usual_s)}."
    )
    yield from _of_job(
        "wait.long", event, state, "job {job} waits unusually long", text, "See why: corral why {job}"
    )


def _at_risk(event: DeadlineAtRisk, state: State) -> Iterator[Notice]:
    if event.doubted:
        yield from _of_job(
            "deadline.at-risk",
            event,
            state,
            "job {job} will miss its deadline",
            "Job {job} ({name}) is expected to miss its deadline, because the resources that it needs become "
            "free too late.",
            "See why and which change helps: corral why {job}",
        )


def _dependency(event: DependencyDecided, state: State) -> Iterator[Notice]:
    if not event.met:
        yield from _of_job(
            "mine.dependency",
            event,
            state,
            "a dependency of job {job} can never be met",
            f"A dependency of job {{job}} ({{name}}) can never be met: {_escaped(event.detail)}.",
            "See more: corral why {job}",
        )


def _gpu(event: GpuHealthRecorded, state: State) -> Iterator[Notice]:
    if event.health is GpuHealth.PROBING or (event.health is GpuHealth.OK and not event.why):
        return
    node = state.nodes.get(event.node)
    known = {each.uuid: each.number for each in node.facts.gpus} if node is not None else {}
    gpu = f"{event.node}:{known.get(event.uuid, event.uuid)}"
    why = f": {printable(event.why)}" if event.why else ""
    needs = f" It needs: {printable(event.needs)}." if event.needs else ""
    if event.health is GpuHealth.OK:
        yield Notice(
            "gpu.out",
            event.at,
            f"GPU {gpu} has a fault and stays in service",
            f"GPU {gpu} has a fault{why}.",
            f"See its health: corral gpus. Take it out of service: corral nodes cordon {gpu}",
            node=event.node,
        )
        return
    yield Notice(
        "gpu.out",
        event.at,
        f"GPU {gpu} is {event.health.value}",
        f"GPU {gpu} gets no more jobs, because it is {event.health.value}{why}.{needs}",
        f"See its health: corral gpus. Put it back after a repair: corral nodes resume {gpu}",
        node=event.node,
    )


def _away(event: NodeWentAway, _state: State) -> Iterator[Notice]:
    if event.why == JUST_STARTED:
        # Send no notice about a restart of the controller, after which all nodes are disconnected for a
        # moment.
        return
    why = f": {printable(event.why)}" if event.why else ""
    yield Notice(
        "node.away",
        event.at,
        f"node {event.node} is away",
        f"The connection to node {event.node} is lost{why}. Running jobs continue there; no new job starts.",
        f"See its state: corral nodes show {event.node}",
        node=event.node,
    )


def _down(event: NodeWentDown, state: State) -> Iterator[Notice]:
    node = state.nodes.get(event.node)
    jobs = len(node.held) if node is not None else 0
    held = f" {jobs} jobs hold resources on it." if jobs else ""
    yield Notice(
        "node.down",
        event.at,
        f"node {event.node} is down",
        f"Node {event.node} is down: its agent has been silent for too long.{held}",
        f"Check the host and its network. If nothing runs on it any more: corral nodes lost {event.node}",
        node=event.node,
    )


def _budget(event: BudgetReached, _state: State) -> Iterator[Notice]:
    project = printable(event.project)
    yield Notice(
        "budget.100" if event.percent >= 100 else "budget.80",
        event.at,
        f"project {project} has used {event.percent} % of its budget",
        f"Project {project} has used {event.percent} % of its budget for {event.month}: {event.used}.",
        "See all budgets: corral report budget",
        project=event.project,
    )


def _plugin(event: PluginFailed, _state: State) -> Iterator[Notice]:
    given_up = " It is not used again until a restart or another configuration." if event.given_up else ""
    yield Notice(
        "plugin.failed",
        event.at,
        f"the {event.kind} {printable(event.name)} failed",
        f"The {event.kind} {printable(event.name)} failed: {printable(event.why)}.{given_up}",
        "See the controller's log, and: corral profiles show",
    )


def _off_queue(event: OffQueueProcessStarted, _state: State) -> Iterator[Notice]:
    user = printable(event.user)
    yield Notice(
        "off-queue",
        event.at,
        f"{user} uses a GPU of {event.node} without a job",
        f"Process {event.pid} of {user} uses GPU {event.uuid} of node {event.node} without a job: "
        f"{printable(event.command)}.",
        "See all such processes: corral usage --off-queue",
        user=event.user,
        node=event.node,
    )


_MAKERS: Mapping[type[Any], Callable[[Any, State], Iterator[Notice]]] = {
    JobPlaced: _placed,
    JobRequeued: _requeued,
    JobPreempted: _preempted,
    EndWarned: _warned,
    IdleNoted: _idle,
    HealthChanged: _unhealthy,
    WaitAlarmed: _late,
    DeadlineAtRisk: _at_risk,
    DependencyDecided: _dependency,
    GpuHealthRecorded: _gpu,
    NodeWentAway: _away,
    NodeWentDown: _down,
    BudgetReached: _budget,
    PluginFailed: _plugin,
    OffQueueProcessStarted: _off_queue,
}

_WORDS_OF: Mapping[type[Any], tuple[str, ...]] = {
    JobPlaced: ("mine.started",),
    JobEnded: ("mine.failed", "mine.ended"),
    JobRequeued: ("mine.requeued",),
    JobPreempted: ("mine.preempted",),
    EndWarned: ("mine.warned",),
    IdleNoted: ("idle",),
    HealthChanged: ("mine.unhealthy", "service.unhealthy"),
    WaitAlarmed: ("wait.long",),
    DeadlineAtRisk: ("deadline.at-risk",),
    DependencyDecided: ("mine.dependency",),
    GpuHealthRecorded: ("gpu.out",),
    NodeWentAway: ("node.away",),
    NodeWentDown: ("node.down",),
    BudgetReached: ("budget.80", "budget.100"),
    PluginFailed: ("plugin.failed",),
    OffQueueProcessStarted: ("off-queue",),
}
