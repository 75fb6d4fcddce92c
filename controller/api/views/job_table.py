"""The columns of the table of jobs. Each column has a function that reads its value from a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from controller.api.views.resources import held_view, nodes_asked, shown_gpus
from controller.core.engine import Engine
from controller.core.explain.why_pending import reason_of
from controller.core.model.job import NEVER, Job
from wire.agent.reports import AttemptUse, HostUse
from wire.codec import encode
from wire.job.placement.affinity import Operator
from wire.job.start_conditions import OnNodeLost
from wire.job.steps import Step
from wire.names import JobState, Reason


class Source(NamedTuple):
    """The data beside the job that columns read: the engine, a function that returns the usage of a running
    job until now by node, and a function that returns the steps of the last attempt of a job.
    """

    engine: Engine
    use_of: Callable[[Job], Mapping[str, AttemptUse]]
    steps_of: Callable[[Job], Iterable[Step]] = lambda _: ()


Read = Callable[[Source, Job], Any]


def _hold(_: Source, job: Job) -> str:
    if not job.held:
        return ""
    return "operator" if job.operator_hold else "user"


def _eligible_at(_: Source, job: Job) -> float | None:
    if job.held or Reason.DEPENDENCY in job.wait.gates:
        return None
    return max(job.ready_at, job.spec.begin_at or 0.0)


def _expected_start(_: Source, job: Job) -> float | None:
    return job.foreseen[-1].start if job.foreseen and job.state is JobState.QUEUED else None


def _held(source: Source, job: Job) -> list[Any]:
    found = []
    for member in job.shown_members:
        held = held_view(source.engine.state, member.allocation)
        gpus = [[gpu.index, gpu.milli] for gpu in held.gpus]
        found.append([held.node, held.cpu_milli, held.memory_mib, gpus])
    return found


def _gpu_model(source: Source, job: Job) -> str:
    for member in job.members.values():
        node = source.engine.state.nodes.get(member.allocation.node)
        held = {gpu.uuid for gpu in member.allocation.gpus}
        for gpu in node.facts.gpus if node is not None and held else ():
            if gpu.uuid in held:
                return gpu.model
    return _gpu_request(source, job)


def _gpu_request(_: Source, job: Job) -> str:
    return job.spec.gpu_models[0] if len(job.spec.gpu_models) == 1 else ""


def _nodes(source: Source, job: Job) -> int:
    return len(job.shown_members) or nodes_asked(source.engine, job)


def _use(_: Source, job: Job) -> list[float] | None:
    uses = [member.use for member in job.members.values() if member.use is not None]
    if not uses:
        return None
    mean = sum(use.mean for use in uses) / len(uses)
    return [round(mean, 1), sum(use.peak_mib for use in uses), round(sum(use.wh for use in uses), 3)]


def _host_use(so_far: Mapping[str, AttemptUse], node: str) -> HostUse:
    """Return the usage until now of a running gang member (the part of a job on the node `node`); zero if
    there is no measurement yet.
    """
    found = so_far.get(node)
    return HostUse() if found is None or found.host is None else found.host


def _cpu_s(source: Source, job: Job) -> list[float]:
    so_far = source.use_of(job)
    return [
        _host_use(so_far, node).cpu_s if member.ended_at is None else member.cpu_s
        for node, member in job.members.items()
    ]


def _max_rss_mib(source: Source, job: Job) -> list[int]:
    so_far = source.use_of(job)
    return [
        _host_use(so_far, member.allocation.node).peak_mib if member.ended_at is None else member.max_rss_mib
        for member in job.shown_members
    ]


def _memory_per_cpu_mib(_: Source, job: Job) -> int | None:
    """Return the value of --mem-per-cpu. sbatch passes it to the job as a variable, and requests the memory
    of all CPUs of a node.
    """
    text = job.spec.env.get("SLURM_MEM_PER_CPU", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _program(_: Source, job: Job) -> str:
    return job.spec.command[0] if job.spec.command else ""


def _script(_: Source, job: Job) -> str:
    """Return the name of the job's batch script; empty if the job has none, or if the name is unknown. The
    command of a batch job contains the text of the script. The name follows the text if `-c` precedes the
    text (`/bin/sh -c TEXT NAME ARGUMENT…`); otherwise it precedes the text. The command of a Python script
    contains no name.
    """
    command = job.spec.command
    text = next((place for place, word in enumerate(command) if word.startswith("#!")), 0)
    if not job.spec.batch or not text:
        return ""
    if command[text - 1] != "-c":
        return command[text - 1]
    return "" if "python" in command[text - 2] or len(command) == text + 1 else command[text + 1]


def _node_names(job: Job, operator: Operator) -> list[str] | None:
    for term in job.spec.affinity:
        if term.key == "node" and term.operator is operator:
            return list(term.values)
    return None


COLUMNS: Mapping[str, Read] = {
    "id": lambda _, job: job.id,
    "label": lambda _, job: job.label,
    "array": lambda _, job: job.array,
    "index": lambda _, job: job.index,
    "array_text": lambda _, job: job.spec.array or "",
    "name": lambda _, job: job.name,
    "user": lambda _, job: job.user,
    "project": lambda _, job: job.spec.project,
    "queue": lambda _, job: job.spec.queue,
    "reservation": lambda _, job: job.spec.reservation,
    "qos": lambda source, job: source.engine.state.quotas.rules.qos(job.spec.queue),
    "state": lambda _, job: job.state.value,
    "reason": lambda source, job: reason_of(source.engine.state, job).value,
    "detail": lambda _, job: job.detail,
    "stopping": lambda _, job: job.stopping is not None and not job.state.terminal,
    "hold": _hold,
    "hopeless": lambda _, job: bool(job.wait.lost),
    "priority": lambda _, job: job.priority,
    "submitted_at": lambda _, job: job.submitted_at,
    "eligible_at": _eligible_at,
    "started_at": lambda _, job: job.started_at,
    "ended_at": lambda _, job: job.ended_at,
    "expected_start": _expected_start,
    "limit_s": lambda _, job: None if job.limit == NEVER else job.limit,
    "time_min_s": lambda _, job: job.spec.time_min_s,
    "exit_code": lambda _, job: job.code,
    "signal": lambda _, job: job.signal,
    "attempt": lambda _, job: job.attempt,
    "restarts": lambda _, job: max(0, job.attempt - 1),
    "last_reason": lambda _, job: job.last.reason.value if job.last is not None else "",
    "held": _held,
    "gpu_model": _gpu_model,
    "gpu_request": _gpu_request,
    "nodes": _nodes,
    "cpu_milli": lambda _, job: job.spec.cpu_milli,
    "memory_mib": lambda _, job: job.spec.memory_mib,
    "memory_per_cpu_mib": _memory_per_cpu_mib,
    "scratch_mib": lambda _, job: job.spec.scratch_mib,
    "gpus": lambda _, job: shown_gpus(job),
    "tasks_per_node": lambda _, job: job.spec.tasks_per_node,
    "cpu_s": _cpu_s,
    "max_rss_mib": _max_rss_mib,
    "use": _use,
    "comment": lambda _, job: job.spec.comment,
    "workdir": lambda _, job: job.spec.workdir,
    "program": _program,
    "script": _script,
    "batch": lambda _, job: job.spec.batch,
    "output": lambda _, job: job.spec.output,
    "error": lambda _, job: job.spec.error,
    "licences": lambda _, job: dict(job.spec.licences),
    "after": lambda _, job: [[each.until.value, each.job or each.path] for each in job.spec.after],
    "begin_at": lambda _, job: job.spec.begin_at,
    "deadline_at": lambda _, job: job.spec.deadline_at,
    "requeue": lambda _, job: job.spec.on_node_lost is not OnNodeLost.WAIT,
    "node_list": lambda _, job: _node_names(job, Operator.IN),
    "excluded": lambda _, job: _node_names(job, Operator.NOT_IN) or [],
    "steps": lambda source, job: [encode(step) for step in source.steps_of(job)],
    "labels": lambda _, job: dict(job.spec.labels),
}
"""For each column name of wire.api.job_table: the function that reads the column's value from a job of the
engine.
"""
