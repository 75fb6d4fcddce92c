"""Handles the commands of users on workloads: submit, cancel and retry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.core.input_handlers.context import Context
from controller.core.input_handlers.job_commands import JobCommands, key_refusal
from controller.core.input_handlers.workload_retry import jobs_to_retry, renewed
from controller.core.lifecycle.waiting.gates import AdmittedSpec
from controller.core.model.decision.decision import Accepted, Refusal, Reply
from controller.core.model.events.queued import JobQueued
from controller.core.model.events.workloads import WorkloadRetried, WorkloadSubmitted
from controller.core.model.inputs import job_inputs
from controller.core.model.job import Job
from controller.core.model.wait_state import with_gate
from controller.core.quota.usage_counters import TenantKey, queue_user
from controller.core.state.workloads import Workload
from wire.codec import Malformed
from wire.job.spec import JobSpec, spec_problems, with_values
from wire.job.start_conditions import Dependency
from wire.names import Reason
from wire.workload.spec import WorkloadSpec, WorkloadTask, in_order, job_specs, workload_problems

FREE = ("command", "name", "env", "output", "error", "comment")
"""Fields of a spec that have no influence on whether and where a job can run. Jobs of a task that differ only
in these fields are checked together.
"""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job of a workload that has passed all checks. `among` contains its dependencies on other jobs that
    the same submit or retry queues. `index` is its index in the array of its task.
    """

    admitted: AdmittedSpec
    from_queue: tuple[str, ...]
    index: int | None = None
    among: tuple[Dependency, ...] = ()


class WorkloadCommands:
    """Handles commands of users on workloads. A command is executed completely, or refused without any
    change.

    A submit
    1. The workload must be valid: different names of tasks, no dependencies in a cycle, not too many jobs.
    2. Each job must pass the checks of `corral submit` (`JobCommands.examine`). Jobs of one task that differ
       only in `FREE` fields are checked together. Quotas of waiting jobs count all jobs of the workload.
    3. Every job is queued as an ordinary job. A task with several jobs becomes one array, in which each
       element has its own spec. Limits of running jobs and dependencies on the whole task therefore work as
       for any array.

    Cost: step 2 once for each group of jobs with equal requests, then O(jobs).

    Example: the task `train` has two jobs, and the task `report` depends on `train`. The next free id is 7.
    The jobs of `train` are 7_0 and 7_1 of the array 7 (with the internal ids 7 and 8). The job of `report` is
    job 9, with the dependency "array 7 must succeed".
    """

    def __init__(self, context: Context, users: JobCommands) -> None:
        self._state = context.state
        self._record = context.record
        self._users = users

    def submit(self, given: job_inputs.SubmitWorkload, now: float) -> Reply:
        """Queue all jobs of a workload. If the user has already submitted with this idempotency key, return
        the earlier workload and queue nothing.
        """
        known = self._state.workloads.with_key(given.user, given.key)
        if known is not None:
            return Accepted(
                tuple(number for task in known.tasks.values() for number in task.ids()), (), known.id
            )
        checked = key_refusal(given.key) or self.check(given, now)
        if isinstance(checked, Refusal):
            return checked
        number, asked = self._state.workloads.next_id, given.asked
        self._record(WorkloadSubmitted(now, number, asked, given.user, given.key))
        first, slots, firsts = self._state.next_job, asked.max_parallel, dict[str, int]()
        ids: list[int] = []
        for task, jobs in checked:
            firsts[task.name] = first
            linked = [
                replace(job, among=tuple(_dependencies(task, place, firsts)))
                for place, job in enumerate(jobs)
            ]
            slots = self._queue(number, task.name, linked, given.user, slots, now)
            ids += range(first, first + len(jobs))
            first += len(jobs)
        return Accepted(tuple(ids), (), number)

    def check(
        self, given: job_inputs.SubmitWorkload, now: float
    ) -> Refusal | list[tuple[WorkloadTask, list[NewJob]]]:
        """Check a submit. Return a refusal, or each task with the jobs that the submit would queue. A task
        comes after all tasks on which it depends. Nothing is queued.
        """
        wrong = next(workload_problems(given.asked), None)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0])
        queued: dict[TenantKey, int] = {}
        found = []
        for task in in_order(given.asked.tasks):
            where = f"tasks.{task.name}"
            try:
                specs = job_specs(task)
            except Malformed as malformed:
                return Refusal("invalid", malformed.message, f"{where}.{malformed.where}")
            jobs = self._check_jobs(specs, given, queued, now)
            if isinstance(jobs, Refusal):
                return replace(jobs, where=f"{where}.{jobs.where}" if jobs.where else where)
            found.append((task, jobs))
        return found

    def _check_jobs(
        self,
        specs: Sequence[JobSpec],
        given: job_inputs.SubmitWorkload,
        queued: dict[TenantKey, int],
        now: float,
    ) -> Refusal | list[NewJob]:
        """Check the jobs of one task. `queued` contains the number of jobs of this workload that were already
        checked, by tenant. The jobs of this task are added to `queued`.
        """
        base, groups = vars(specs[0]), dict[str, list[int]]()
        for place, spec in enumerate(specs):
            own = {
                name: value
                for name, value in vars(spec).items()
                if value is not base[name] and name not in FREE
            }
            groups.setdefault(repr(own), []).append(place)
        found: dict[int, NewJob] = {}
        for places in groups.values():
            first = specs[places[0]]
            submit = job_inputs.Submit(first, given.user, "", given.known, given.asker)
            examined = self._users.examine(submit, now, len(places), queued)
            if isinstance(examined, Refusal):
                return examined
            admitted, from_queue, _ = examined
            for place in places:
                # Check the spec without its field `array`, because this field is the same for all jobs and
                # takes long to check.
                wrong = (
                    spec_problems(with_values(specs[place], {"array": None})) if place != places[0] else ()
                )
                if wrong:
                    return Refusal("invalid", wrong[0][1], wrong[0][0])
                free = {name: getattr(specs[place], name) for name in FREE}
                spec = with_values(admitted.spec, free)
                index = None if spec.array is None else place
                found[place] = NewJob(replace(admitted, spec=spec), from_queue, index)
            accounts = self._state.accounts.tenants_of(given.user, admitted.spec)
            keys = {queue_user(admitted.spec.queue, given.user), *(account.key for account in accounts)}
            queued.update((key, queued.get(key, 0) + len(places)) for key in keys)
        return [found[place] for place in range(len(specs))]

    def _queue(
        self, workload: int, task: str, jobs: Sequence[NewJob], user: str, slots: int | None, now: float
    ) -> int | None:
        """Queue the jobs of a task. `slots` is the number of free run slots (permits to run) of the workload;
        None if the workload has no limit of running jobs. Return the number of run slots that are free
        afterwards.
        """
        first = self._state.next_job
        for number, job in enumerate(jobs):
            spec = job.admitted.spec
            closed = job.admitted.gates_of(number)
            if job.among:
                spec = with_values(spec, {"after": (*spec.after, *job.among)})
                closed = with_gate(closed, Reason.DEPENDENCY)
                if spec.array is not None and "%" in spec.array:
                    closed = with_gate(closed, Reason.ARRAY)
            if slots is not None:
                if spec.hold or not slots or {Reason.DEPENDENCY, Reason.ARRAY} & {*closed}:
                    closed = with_gate(closed, Reason.WORKLOAD)
                else:
                    slots -= 1
            array = None if job.index is None else first
            self._users.note_size(first + number, spec)
            self._record(
                JobQueued(
                    *(first + number, now, spec, user, "", array, job.index, closed),
                    *(job.admitted.met, job.admitted.lost, job.from_queue, None, workload, task),
                )
            )
        return slots

    def cancel(self, given: job_inputs.CancelWorkload, now: float) -> Reply:
        """Cancel all jobs of a workload that have not ended."""
        workload = self._state.workloads.by_id.get(given.workload)
        if workload is None:
            return no_such_workload(given.workload)
        live = [job for job in self._jobs(workload) if not job.state.terminal]
        if not live:
            return Refusal("conflict", f"all jobs of workload {workload.id} have ended", "workload")
        for job in live:
            refused = self._users.cascade_refusal(job, given.asker)
            if refused is not None:
                return refused
        for job in sorted(live, key=lambda job: -job.id):
            # Cancel the jobs with the highest ids first, because they may depend on jobs with lower ids. If
            # the lower ids were cancelled first, the dependent jobs would end with another reason.
            self._users.cancel(job_inputs.Cancel(job.id, given.by), now)
        return Accepted(tuple(job.id for job in live), (), workload.id)

    def retry(self, given: job_inputs.RetryWorkload, now: float) -> Reply:
        """Queue new jobs in place of failed jobs and, with `given.cancelled`, in place of cancelled jobs
        (`workload_retry.py`).
        """
        workload = self._state.workloads.by_id.get(given.workload)
        if workload is None:
            return no_such_workload(given.workload)
        old = jobs_to_retry(self._state, workload, self._jobs(workload), cancelled=given.cancelled)
        if isinstance(old, Refusal):
            return old
        queued: dict[TenantKey, int] = {}
        found: list[tuple[str, list[NewJob]]] = []
        for task, again in renewed(self._state, old):
            outside = [with_values(each.spec, {"after": each.outside}) for each in again]
            asked = job_inputs.SubmitWorkload(_NO_TASKS, workload.user, "", {}, given.asker)
            jobs = self._check_jobs(outside, asked, queued, now)
            if isinstance(jobs, Refusal):
                where = f"tasks.{task}.{jobs.where}" if jobs.where else f"tasks.{task}"
                return replace(jobs, where=where)
            found.append(
                (
                    task,
                    [
                        replace(job, index=each.index, among=each.among, from_queue=each.from_queue)
                        for job, each in zip(jobs, again, strict=True)
                    ],
                )
            )
        slots = self._free_slots(workload)
        self._record(
            WorkloadRetried(now, workload.id, given.by, tuple(job.id for job in old), given.cancelled)
        )
        ids: list[int] = []
        for task, jobs in found:
            ids += range(self._state.next_job, self._state.next_job + len(jobs))
            slots = self._queue(workload.id, task, jobs, workload.user, slots, now)
        return Accepted(tuple(ids), (), workload.id)

    def _free_slots(self, workload: Workload) -> int | None:
        """Return how many run slots (permits to run) of the workload are free; None if the workload has no
        limit of running jobs.
        """
        if workload.max_parallel is None:
            return None
        live = (job for job in self._jobs(workload) if not job.state.terminal)
        return workload.max_parallel - sum(Reason.WORKLOAD not in job.wait.gates for job in live)

    def _jobs(self, workload: Workload) -> list[Job]:
        return present_jobs(self._state.jobs, workload)


def present_jobs(jobs: Mapping[int, Job], workload: Workload) -> list[Job]:
    """Return the jobs of a workload that are still in memory, without the jobs that a retry has replaced."""
    replaced = set(workload.replaced)
    ids: Iterable[int] = (number for task in workload.tasks.values() for number in task.ids())
    return [jobs[number] for number in ids if number in jobs and number not in replaced]


def no_such_workload(workload: int | str) -> Refusal:
    hint = "'corral workload list --all' lists all workloads."
    return Refusal("not_found", f"there is no workload {workload}", "workload", hint)


def _dependencies(task: WorkloadTask, place: int, firsts: Mapping[str, int]) -> Iterable[Dependency]:
    """Yield the dependencies of the job with index `place` in the task on jobs of other tasks. `firsts`
    contains the id of the first job of each task.
    """
    for each in task.after:
        first = firsts[each.task]
        if not each.elements:
            yield Dependency(each.until, str(first))
        else:
            yield from (Dependency(each.until, f"{first}_{number}") for number in each.elements[place])


_NO_TASKS = WorkloadSpec(())
