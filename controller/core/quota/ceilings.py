"""Ceilings: the highest priority and the best protection from preemption that a user may request.

1. A submit or edit that a user sends has a `Requester`: the user with its rights. Ceilings do not apply to
   admins. Inputs of the simulator and of replays have no Requester, so ceilings do not apply to them.
2. For an operator only the table of operators applies. For a user, the tables are searched in this order: the
   queue, the user, the project, all users. For each key, the first table that has the key applies. For a
   queue, `[queues.NAME] max_priority` is searched before the older table `[access.limits.queues.NAME]`.
3. A submit is checked against all keys. An edit is checked against a key only if the edit requests more of
   what the key limits, or moves the job to another queue or project. So a user can still edit a job after an
   operator has raised its priority above the ceiling.

Priorities inherited from a dependent job need no check, because the priority of the dependent job has been
checked.

Example: the highest priority is NORMAL for all users, HIGH in project "prod", and LOW in queue "scavenge". A
job with priority HIGH in project prod is accepted in the default queue. In queue "scavenge" this job is
refused, because LOW is the highest priority there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import inf

from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs.input import Requester
from wire.job.spec import JobSpec
from wire.names import priority_name
from wire.text import duration, printable


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One table of ceilings in scheduler.toml: the most that a job may request. None for a key that the table
    does not have.
    """

    priority: int | None = None
    not_preemptible: bool | None = None
    """True: users may make jobs exempt from preemption."""
    min_runtime_s: float | None = None
    """A job may be protected from preemption for at most this many seconds after its start."""
    grace_s: float | None = None
    """A job may take at most this many seconds to save a checkpoint and end after its preemption."""
    deadline: bool | None = None
    """True: jobs may have a deadline."""


NO_CEILING = Ceiling()


@dataclass(frozen=True, slots=True)
class Ceilings:
    """All tables of ceilings ([access.limits] of scheduler.toml). By default there is no ceiling."""

    everyone: Ceiling = NO_CEILING
    operators: Ceiling = NO_CEILING
    users: Mapping[str, Ceiling] = field(default_factory=dict)
    projects: Mapping[str, Ceiling] = field(default_factory=dict)
    queues: Mapping[str, Ceiling] = field(default_factory=dict)
    queue_priorities: Mapping[str, int] = field(default_factory=dict)
    """The highest priority that users may request in each queue, from `[queues.NAME] max_priority`."""

    def refusal(self, asker: Requester | None, spec: JobSpec, was: JobSpec | None = None) -> Refusal | None:
        """Return a refusal if the job requests more than a ceiling allows the user; otherwise None. `was` is
        the spec before an edit, and None for a submit.
        """
        if asker is None or asker.admin:
            return None
        moved = was is None or (was.queue, was.project) != (spec.queue, spec.project)
        tables = [*self._tables(asker, spec)]
        for name, more in (
            ("priority", was is None or spec.priority > was.priority),
            ("not_preemptible", was is None or was.preemptible),
            ("min_runtime_s", was is None or spec.min_runtime_s > was.min_runtime_s),
            ("grace_s", was is None or _stop_s(spec) > _stop_s(was)),
            ("deadline", was is None or _latest_start(spec) < _latest_start(was)),
        ):
            if moved or more:
                stated = ((path, getattr(table, name)) for path, table in tables)
                path, most = next(((path, most) for path, most in stated if most is not None), ("", None))
                beyond = None if most is None else _beyond(name, most, spec)
                if beyond is not None:
                    where, key, asked, allowed = beyond
                    if path.startswith("queues."):
                        key = "max_priority"
                    return _refusal(asker, path, where, key, asked, allowed)
        return None

    def in_force(self, asker: Requester, queue: str, project: str) -> Ceiling:
        """Return the ceilings for jobs of a user in a queue and a project."""
        spec = JobSpec(("true",), queue=queue, project=project)
        tables = [table for _, table in self._tables(asker, spec)]
        return Ceiling(
            **{
                each.name: next((v for table in tables if (v := getattr(table, each.name)) is not None), None)
                for each in fields(Ceiling)
            }
        )

    def _tables(self, asker: Requester, spec: JobSpec) -> Iterator[tuple[str, Ceiling]]:
        """Yield (path in scheduler.toml, table) for each table that applies to the job. If several tables
        have a key, the table that is yielded first decides.
        """
        if asker.operator:
            yield "access.limits.operators", self.operators
            return
        if spec.queue in self.queue_priorities:
            yield f"queues.{printable(spec.queue)}", Ceiling(priority=self.queue_priorities[spec.queue])
        for scope, tables, name in (
            ("queues", self.queues, spec.queue),
            ("users", self.users, asker.user),
            ("projects", self.projects, spec.project),
        ):
            if name in tables:
                yield f"access.limits.{scope}.{printable(name)}", tables[name]
        yield "access.limits", self.everyone


def _beyond(name: str, most: float, spec: JobSpec) -> tuple[str, str, str, str] | None:
    """Compare one requested value with its ceiling. If the spec exceeds the ceiling, return (field of the
    spec, key of the table, requested value, allowed value). Otherwise return None.
    """
    if name == "priority":
        within, where, asked = spec.priority <= most, "priority", f"priority {priority_name(spec.priority)}"
        allowed = f"at most {priority_name(int(most))}"
    elif name == "not_preemptible":
        within, where, asked = bool(most) or spec.preemptible, "preemptible", "a job that is not preemptible"
        allowed = "preemptible jobs only"
    elif name == "grace_s":
        within, where = _stop_s(spec) <= most, "checkpoint_s" if spec.saves else "grace_s"
        asked, allowed = f"{duration(_stop_s(spec))} to save and end", f"at most {duration(most)}"
    elif name == "deadline":
        within, where = bool(most) or spec.deadline_at is None, "deadline_at"
        asked, allowed = "a deadline", "none"
    else:
        within, where = spec.min_runtime_s <= most, "min_runtime_s"
        asked, allowed = f"a minimum runtime of {duration(spec.min_runtime_s)}", f"at most {duration(most)}"
    return None if within else (where, name, asked, allowed)


def _stop_s(spec: JobSpec) -> float:
    """Return the seconds that a job with this spec may take to end after its preemption. The result is the
    grace time of the job, plus the time for its checkpoint if it saves one.
    """
    return spec.grace_s + (spec.checkpoint_s if spec.saves else 0.0)


def _latest_start(spec: JobSpec) -> float:
    return inf if spec.deadline_at is None else spec.deadline_at - (spec.time_limit_s or 0.0)


def _refusal(asker: Requester, path: str, where: str, key: str, asked: str, allowed: str) -> Refusal:
    requester = "operators" if asker.operator else f"user {printable(asker.user)!r}"
    return Refusal(
        "not_allowed",
        f"{asked} is more than {requester} may ask for here: {allowed}, by [{path}] {key}",
        where,
        "Ask for less."
        if asker.operator
        else "Ask for less. An operator may then give the job more, with 'corral job set'.",
    )
