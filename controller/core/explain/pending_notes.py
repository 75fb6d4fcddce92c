"""Notes about a waiting job, such as soft limits that move it back in the queue, or GPUs out of service."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.explain.node_scores import nearness_note
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placer
from controller.core.state.order_view import over_soft_quota, overdue_gangs
from controller.core.state.state import State
from wire.names import PRIORITIES, GpuHealth
from wire.text import duration, printable

NAMED = 8
"""The most jobs ahead in the queue, and the most GPUs out of service, that an explanation lists."""
RATIONED = "its user has used more than the part of the project, so backfill tries the job after all others"


def pending_notes(state: State, placer: Placer, job: Job, now: float) -> Iterator[str]:
    """Yield further facts about a waiting job, each as a text: what moves the job back or forward in the
    queue, an unusually long wait, the nodes that a gang would get now, and suitable GPUs out of service.
    """
    soft = over_soft_quota(state, job, now)
    if soft is not None:
        yield f"it is ordered behind all jobs within their soft limits: {soft}"
    if state.budgets.comes_last(job.spec.project, now):
        standing = state.budgets.standing(job.spec.project, now)
        used = "" if standing is None else f" ({standing.text})"
        yield f"its project has used its budget{used}, so the job is ordered behind those of other projects"
    if state.scavengers_last and job.granted_priority <= PRIORITIES["SCAVENGER"]:
        yield "it has the priority SCAVENGER, so it is ordered behind all other jobs"
    if job.spec.time_min_s is not None and job.spec.time_min_s < job.limit:
        yield f"may start with a shorter time limit, at least {duration(job.spec.time_min_s)} (--time-min)"
    if job.wait.alarmed:
        yield "it has waited much longer than jobs of its queue and width usually wait (wait_alarm)"
    if job.id in overdue_gangs(state, state.queue_of(job), now):
        after = f"it has waited longer than {duration(state.gang_after_s)} (gang_after_s)"
        why = "it was preempted and needs several nodes" if job.preemptions else after
        yield f"{why}, so it comes before all other jobs"
    yield from nearness_note(placer, job) if len(state.nodes) else ()
    if job.ask.part.wants_gpus:
        shape = placer.shape(job.ask)
        possible = placer.possible_nodes(shape.part) if shape is not None else state.nodes.columns.open
        out = [
            f"{node.name}:{gpu.number} ({node.health_of(gpu).value})"
            for node in state.nodes.rows
            if possible[node.row]
            for gpu in node.facts.gpus
            if node.health_of(gpu) is not GpuHealth.OK
        ]
        if out:
            more = f" and {len(out) - NAMED} more" if len(out) > NAMED else ""
            yield f"takes no new work: GPU {', '.join(out[:NAMED])}{more}"


def hours_note(state: State, now: float) -> Iterator[str]:
    """Yield a text with the tables [hours.NAME] that are in force, and those that come into force next. Yield
    nothing if scheduler.toml has no such tables.
    """
    timetable = state.quotas.rules.timetable
    if timetable.tables:
        until = timetable.next_change(now)
        present = _tables_text(timetable.in_force(now))
        wait = (
            f"; in {duration(until - now)}: {_tables_text(timetable.in_force(until))}"
            if until < NEVER
            else ""
        )
        yield f"limits in force: {present}{wait}"


def _tables_text(tables: tuple[str, ...]) -> str:
    """Return the headings of these tables [hours.NAME] as in scheduler.toml. Return [quota] if `tables` is
    empty, because the table [quota] then applies.
    """
    return " and ".join(f"[hours.{printable(name)}]" for name in tables) or "[quota]"
