"""Finds the smallest change that starts a waiting job now. Each change is tried on a copy of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core.engine import Engine
from controller.core.explain.blockers import licence_holders
from controller.core.forecast.forecast import OnCopy, on_fork
from controller.core.forecast.longest_time_limit import time_limits_that_fit
from controller.core.forecast.relaxations import Relaxation, RelaxationScale, relaxations, without_constraints
from controller.core.forecast.trial import StartTrial
from controller.core.input_handlers.job_edits import changed_fields
from controller.core.model.inputs.agent_inputs import GpuChecked
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Edit, Preempt, Release
from controller.core.model.inputs.node_inputs import Resume, ResumeGpu
from controller.core.model.job import Job
from controller.core.model.request import without_relaxed
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.state.barred_nodes import barred_nodes
from wire.codec import encode
from wire.job.spec import JobSpec, spec_problems
from wire.names import GpuHealth
from wire.text import printable

MAX_EDITS = 3
"""At most this many suggestions change the job's spec."""
MOST_NODES = 4
"""A resume is tried for at most this many drained nodes, and for at most this many cordoned GPUs of one node.
"""
MOST_SINGLES = 4
"""If a waiting job lacks quota or a licence, the search tries to preempt single running jobs. It tries at
most this many.
"""
ACTOR = "root"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that starts a waiting job. `sentence` is the end of the sentence `it would start now …`.

    Exactly one of these fields is set: `changes` (new values of spec fields), `preempt` (running jobs to
    preempt), `release` (release the job) or `resume` (nodes and GPUs to resume). With `hold`, the preempted
    jobs are also held, because the preempted jobs would otherwise start again before the waiting job.
    """

    sentence: str
    changes: dict[str, Any] = field(default_factory=dict)
    preempt: tuple[int, ...] = ()
    hold: bool = False
    release: bool = False
    resume: tuple[str, ...] = ()


def suggestions(ahead: Engine, job: int, now: float, on_copy: OnCopy = on_fork) -> tuple[Suggestion, ...]:
    """Return the changes that would start the job now, the smallest first. The result is empty if the job
    starts without a change, or if no change helps.

    1. For a held job, suggest only its release.
    2. Change one field of its spec. Take the smallest change of each kind, and at most MAX_EDITS changes in
       all.
    3. Resume a drained node or cordoned GPUs.
    4. Preempt running jobs.
    5. If no single change of the spec helps, try the spec without any constraints. If this does not help
       either, also reduce one amount.

    Each change is tried alone (StartTrial) on a copy of `ahead` made by `on_copy`. `ahead` is not changed.
    """
    trial = StartTrial(ahead, job, now, on_copy)
    asked = trial.job
    if asked.held and trial.starts(Release(job, ACTOR)):
        how = "if an operator released it" if asked.operator_hold else "if it was released"
        return (Suggestion(how, release=True),)
    if not asked.ready or (limits := trial.after_pass(time_limits_that_fit)) is None:
        return ()
    editing = EditSearch(trial, limits)
    found = [*editing.singles()][:MAX_EDITS]
    found += [*_resumed(trial)][:1]
    found += [*_preempted(trial)][:1]
    if not any(each.changes for each in found):
        found += editing.both()
    return tuple(found)


class EditSearch:
    """Finds changes of a job's spec with which the job would start now."""

    def __init__(self, trial: StartTrial, limits: Sequence[float]) -> None:
        self._trial = trial
        self._job = trial.job
        self._cycle = trial.ahead.profile_cycles.of(trial.job)
        self._limits = limits

    def singles(self) -> Iterator[Suggestion]:
        """For each kind of change (such as less memory or fewer nodes), yield the smallest one that starts
        the job.
        """
        for scale in relaxations(self._job.spec, self._job.user, self._cycle.placer, self._limits):
            least = self._least(scale)
            if least is not None:
                yield Suggestion(least.sentence, self._changes(least.spec))

    def both(self) -> Iterator[Suggestion]:
        """Yield at most one change. It removes all constraints of the job on nodes, GPUs and other jobs. If
        this is not enough for a start, it also reduces one amount, such as memory.
        """
        bare = without_constraints(self._job.spec)
        if bare is None:
            return
        for scale in ((bare,), *relaxations(bare.spec, self._job.user, self._cycle.placer, self._limits)):
            least = self._least(scale)
            if least is not None:
                sentence = bare.sentence + (f", and {least.sentence}" if least is not bare else "")
                yield Suggestion(sentence, self._changes(least.spec))
                return

    def _least(self, scale: RelaxationScale) -> Relaxation | None:
        """Return the smallest change in `scale` that starts the job; None if no change in `scale` starts it.

        `scale` contains changes of one kind, the smallest first. If a change helps, all larger changes also
        help. Therefore try the smallest, then the largest, and then halve the range between them.
        """
        fitting = [each for each in scale if self._fits_now(each.spec)]
        low, high = 0, len(fitting) - 1
        if not fitting or self._starts(fitting[low]):
            return fitting[low] if fitting else None
        if high == low or not self._starts(fitting[high]):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._starts(fitting[middle]):
                high = middle
            else:
                low = middle
        return fitting[high]

    def _starts(self, each: Relaxation) -> bool:
        changes = self._changes(each.spec)
        return bool(changes) and self._trial.starts(Edit(self._job.id, "", changes))

    def _changes(self, spec: JobSpec) -> dict[str, Any]:
        """Return the fields of `spec` that differ from the job's spec, encoded as in JSON."""
        encoded = encode(spec)
        return {name: encoded[name] for name in changed_fields(self._job.spec, spec)}

    def _fits_now(self, spec: JobSpec) -> bool:
        """Return whether a job with this spec fits on free nodes now and exceeds no limit.

        A job that does not fit cannot start, so this check saves trials on a copy of the engine.
        """
        if spec_problems(spec):
            return False
        spec = self._trial.ahead.with_defaults(self._job, spec)
        state, cycle, now = self._trial.ahead.state, self._cycle, self._trial.now
        asked = without_relaxed(spec, self._job.from_queue) if self._job.wait.relaxed else spec
        ask = state.ask(asked, self._job.user)
        changed_job = replace(self._job, spec=spec, ask=ask)
        if cycle.limits.over(changed_job, now) is not None or state.licences.insufficient(ask.licences):
            return False
        barred = barred_nodes(state, changed_job, now)
        return cycle.placer.find(ask, barred) is not None or cycle.placer.find_fewer(ask, barred) is not None


def _resumed(trial: StartTrial) -> Iterator[Suggestion]:
    """Yield suggestions to resume a drained node, a cordoned GPU, or all cordoned GPUs of a node."""
    nodes = trial.ahead.state.nodes.rows
    for node in [node for node in nodes if node.up and node.drained][:MOST_NODES]:
        if trial.starts(Resume(node.name, ACTOR)):
            yield Suggestion(f"if node {printable(node.name)} was resumed", resume=(node.name,))
    for node in [node for node in nodes if node.up and not node.drained]:
        out = [gpu for gpu in node.facts.gpus if node.health_of(gpu) is GpuHealth.CORDONED][:MOST_NODES]
        for chosen in [*([gpu] for gpu in out), out] if len(out) > 1 else [out] if out else []:
            # Resume the GPUs, and report a passed check (GpuChecked) for each GPU, because a resumed GPU gets
            # no job before it has passed a check.
            given: list[Input] = [ResumeGpu(node.name, gpu.index, ACTOR) for gpu in chosen]
            given += [GpuChecked(node.name, gpu.uuid, True) for gpu in chosen]
            if trial.starts(*given):
                names = tuple(f"{node.name}:{gpu.number}" for gpu in chosen)
                what = "GPU" if len(names) == 1 else "GPUs"
                yield Suggestion(
                    f"if {what} {printable(', '.join(names))} was resumed and passed a check", resume=names
                )
                break


def _preempted(trial: StartTrial) -> Iterator[Suggestion]:
    """Yield suggestions to preempt running jobs.

    If the preempted jobs would start again before the waiting job, they are also held.
    """
    for victims in _candidates(trial):
        for hold in (False, True):
            if trial.starts(*(Preempt(victim, ACTOR, hold) for victim in victims)):
                yield Suggestion(_preempted_text(trial, victims, hold), preempt=victims, hold=hold)
                break


def _preempted_text(trial: StartTrial, victims: Sequence[int], hold: bool) -> str:
    jobs = trial.ahead.state.jobs
    lost = sum(jobs[victim].unsaved(trial.now) for victim in victims)
    names = ", ".join(jobs[victim].label for victim in victims)
    were = "was" if len(victims) == 1 else "were"
    what = f"{were} preempted and held" if hold else f"{were} preempted"
    jobs_word = "job" if len(victims) == 1 else "jobs"
    return f"if {jobs_word} {names} {what}: {lost:.1f} GPU-hours lost"


def _candidates(trial: StartTrial) -> Iterator[tuple[int, ...]]:
    """Yield sets of running jobs to preempt: first the victims of `Engine.preemption_plan`, then sets of one
    job each.

    The sets of one job contain jobs that use the quota, or hold the licence, that the waiting job lacks. They
    are preemptible, and their priority is at most that of the waiting job.
    """
    job, state, now = trial.job, trial.ahead.state, trial.now
    plan, _ = trial.ahead.preemption_plan(job, now)
    if plan is not None and plan.victims:
        yield tuple(victim.job for victim in plan.victims)
    over = trial.ahead.profile_cycles.of(job).limits.over(job, now)
    holders: list[Job] = []
    if isinstance(over, LimitExceeded):
        running = [state.jobs[number] for _, number in state.releases]
        holders = [
            each
            for each in running
            if any(over.key == account.key for account in state.accounts.tenants_of(each.user, each.spec))
        ]
    for lack in state.licences.shortages(job.ask.licences):
        holders += licence_holders(state, lack.name)
    may = {
        each.id: each
        for each in holders
        if each.unended
        and each.stopping is None
        and each.spec.preemptible
        and state.quotas.rules.queue(each.spec.queue).preemptible
        and each.spec.priority <= job.spec.priority
    }
    for each in sorted(may.values(), key=lambda one: (one.unsaved(now), one.id))[:MOST_SINGLES]:
        yield (each.id,)


def suggestion_command(suggestion: Suggestion, label: str, labels: dict[int, str]) -> tuple[str, ...]:
    """Return the arguments of the `corral` command that carries out a suggestion.

    The result is empty if the suggestion changes the spec: the CLI itself makes the `corral` command for such
    a change. `label` is the display id (17 or 12_3) of the waiting job. `labels` contains the display id of
    each running job, by job id.
    """
    if suggestion.release:
        return ("job", "release", label)
    if suggestion.resume:
        return ("nodes", "resume", *suggestion.resume)
    if suggestion.preempt:
        hold = ("--hold",) if suggestion.hold else ()
        return ("job", "preempt", *hold, *(labels[job] for job in suggestion.preempt))
    return ()
