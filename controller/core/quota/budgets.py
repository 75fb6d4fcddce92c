"""Budgets: the GPU-hours and the money that a project may use in one calendar month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from controller.core.model.job import NEVER, Job, Member
from controller.core.quota.budget_rules import NO_BUDGETS, BudgetAction, BudgetRules
from controller.core.quota.usage_counters import HOUR_S, ModelsOfNode, no_models
from wire.names import WHOLE_GPU, Reason
from wire.text import decimal, duration, printable

ALERTS = (80, 100)
"""A BudgetReached event is recorded when a project has used one of these percentages of its monthly
budget.
"""


MIB_OF_GIB = 1_024


KEPT_MONTHS = 13
"""The usage of this many past months is kept for each project."""


@dataclass(slots=True)
class MonthUse:
    """The usage of a project in one month: GPU-seconds, and the cost of GPUs, CPUs and memory. The cost is
    computed with the prices at the time of the usage.
    """

    gpu_s: float = 0.0
    money: float = 0.0


@dataclass(slots=True)
class BudgetUse:
    """The usage of one project with a budget, counted up to the time `at`."""

    month: int
    """The index of the month in `Calendar.starts`."""
    at: float
    used: MonthUse = field(default_factory=MonthUse)
    past: dict[str, MonthUse] = field(default_factory=dict)
    """The usage of earlier months by month name, such as 2026-10, oldest first."""
    alerted: int = 0
    """The highest percentage of ALERTS for which an event was recorded in this month; 0 for none."""
    milli: dict[str, int] = field(default_factory=dict)
    """Thousandths of GPUs that jobs of the project hold now, by GPU model. `milli`, `cpu_milli` and
    `memory_mib` are not stored in the database, but counted from the running jobs.
    """
    cpu_milli: int = 0
    """Thousandths of CPUs that jobs of the project hold now."""
    memory_mib: int = 0
    """The memory that jobs of the project hold now, in MiB."""


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """The usage of a project in the present month, compared with its budget."""

    project: str
    month: str
    ends_at: float
    gpu_hours: float
    money: float
    gpu_hours_limit: float | None
    """The budget of this month in GPU-hours, including GPU-hours carried over from the last month. None if
    the budget does not limit GPU-hours.
    """
    money_limit: float | None
    currency: str = ""

    @property
    def part(self) -> float:
        """The used fraction of the budget; 1 or more if the budget is used up. If both GPU-hours and money
        are limited, the larger fraction counts.
        """
        pairs = ((self.gpu_hours, self.gpu_hours_limit), (self.money, self.money_limit))
        parts = (used / limit if limit else 1.0 for used, limit in pairs if limit is not None)
        return max(parts, default=0.0)

    @property
    def text(self) -> str:
        """The usage and the budget as a text for users, such as `4,000 of 5,000 GPU-hours, 9,500 of 10,000
        EUR`.
        """
        found = []
        if self.gpu_hours_limit is not None:
            found.append(f"{self.gpu_hours:,.5g} of {self.gpu_hours_limit:,.5g} GPU-hours")
        if self.money_limit is not None:
            money = f"{_money_text(self.money)} of {_money_text(self.money_limit)}"
            found.append(f"{money} {self.currency or 'in money'}")
        return ", ".join(found)


def _money_text(value: float) -> str:
    return decimal(value) if 0 < value < 0.1 else f"{value:,.2f}"


@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """The reason why no job of a project may start: its budget is used up."""

    standing: BudgetStanding
    wait_s: float
    """Seconds until the next month begins."""
    reason: ClassVar[Reason] = Reason.QUOTA
    only_this_job: ClassVar[bool] = False

    def __str__(self) -> str:
        each = self.standing
        return (
            f"the budget of project {printable(each.project)!r} for {each.month} is used up ({each.text}): "
            f"none of its jobs starts for another {duration(self.wait_s)}"
        )


class Budgets:
    """The budgets of all projects and their usage.

    1. `start` and `stop` are called when a member of a job's attempt starts and ends. The GPUs, CPUs and
       memory of a member are charged from its start to its end, as in usage records, with the prices of
       scheduler.toml at that time. CPUs and memory are charged only in money, so they cost nothing if
       scheduler.toml has no price for them.
    2. `_advance` adds the usage since its last call. When a month has ended, `_advance` moves the usage of
       that month to `past`.
    3. The budget of a month grows by the unused part of the last month's budget, but at most by the fraction
       `carry_over` of the budget. GPU-hours or money carried over into the last month are not carried over
       again.
    4. `due` returns the alerts whose percentage has been reached. `next_at` is the time at which `due` must
       be called next. It is computed again when a member starts or ends.

    Invariant: `BudgetUse.milli`, `cpu_milli` and `memory_mib` are the sums of the GPUs, CPUs and memory of
    the project's running members (checked by invariants.py). Cost: O(GPUs of the member) for a start or end
    in a project with a budget, nothing for other projects.

    Example: a budget of 1,000 GPU-hours with carry_over 0.25. After a month with 600 GPU-hours the next month
    has 1,250 GPU-hours; after a month with 900, 1,100.
    """

    def __init__(self, models_of: ModelsOfNode = no_models) -> None:
        self.rules = NO_BUDGETS
        self.uses: dict[str, BudgetUse] = {}
        """The usage of each project. Projects whose budget was removed from the configuration are
        included.
        """
        self.stops = self.lowers = False
        """`stops`: at least one project has a budget with the effect STOP (when it is used up, the project's
        jobs wait). `lowers`: at least one has a budget with the effect LOW (the jobs come after all other
        jobs).
        """
        self._models_of = models_of
        self._next_at: float | None = None
        """The time at which `due` must be called next; None if this time must be computed again."""
        self._checked_at = 0.0
        """The time at which `due` last compared the usage with the budgets."""

    @property
    def affects_jobs(self) -> bool:
        """True if at least one project has a budget that delays the project's jobs once it is used up. False
        if used-up budgets only cause events.
        """
        return self.stops or self.lowers

    def adopt(self, rules: BudgetRules, jobs: Iterable[Job]) -> None:
        """Use the budgets of another configuration, and count the resources of the running jobs again."""
        self.rules = rules
        for use in self.uses.values():
            use.month = rules.calendar.index(use.at)
        actions = {each.then for each in rules.budgets.values()}
        self.stops, self.lowers = BudgetAction.STOP in actions, BudgetAction.LOW in actions
        self.recount(jobs)

    def recount(self, jobs: Iterable[Job]) -> None:
        """Count the GPUs, CPUs and memory of the running jobs again. A project without stored usage is
        charged from the start of its running members on.
        """
        self._next_at = None
        for use in self.uses.values():
            use.milli, use.cpu_milli, use.memory_mib = {}, 0, 0
        if not self.rules.budgets:
            return
        known = {*self.uses}
        running = [
            (each.started_at, job, each)
            for job in jobs
            for each in job.running
            if each.started_at is not None and job.spec.project in self.rules.budgets
        ]
        for started_at, job, member in sorted(running, key=lambda each: (each[0], each[1].id)):
            use = self._use(job.spec.project, started_at)
            if job.spec.project not in known:
                self._advance(use, started_at)
            self._count(use, member, 1)

    def advance(self, at: float) -> None:
        """Count the usage of all projects up to the time `at`. Call this method before the prices change."""
        for use in self.uses.values():
            self._advance(use, at)

    def counts(self, job: Job) -> bool:
        """Return whether the usage of the job is charged to a budget."""
        return job.spec.project in self.rules.budgets

    def start(self, job: Job, members: Iterable[Member], at: float) -> None:
        """Charge the project of a job for these members, which have started at the time `at`."""
        self._change(job, members, at, 1)

    def stop(self, job: Job, members: Iterable[Member], at: float) -> None:
        """Stop charging the project of a job for these members, which have ended at the time `at`."""
        self._change(job, members, at, -1)

    def _change(self, job: Job, members: Iterable[Member], at: float, sign: int) -> None:
        if not self.counts(job):
            return
        use = self._use(job.spec.project, at)
        self._advance(use, at)
        for member in members:
            self._count(use, member, sign)
        self._next_at = None

    def _use(self, project: str, at: float) -> BudgetUse:
        found = self.uses.get(project)
        if found is None:
            found = self.uses[project] = BudgetUse(self.rules.calendar.index(at), at)
        return found

    def _count(self, use: BudgetUse, member: Member, sign: int) -> None:
        use.cpu_milli += sign * member.allocation.cpu_milli
        use.memory_mib += sign * member.allocation.memory_mib
        if not member.allocation.gpus:
            return
        models = self._models_of(member.allocation.node)
        for hold in member.allocation.gpus:
            model = models.get(hold.uuid, "")
            use.milli[model] = use.milli.get(model, 0) + sign * hold.milli
            if not use.milli[model]:
                del use.milli[model]

    def _advance(self, use: BudgetUse, at: float) -> None:
        calendar, month = self.rules.calendar, self.rules.calendar.index(at)
        for index in range(max(use.month, month - KEPT_MONTHS), month):
            use.past[calendar.name(index)] = self._in_month(use, index, at)
        for name in list(use.past)[:-KEPT_MONTHS]:
            del use.past[name]
        used = self._in_month(use, month, at)
        if month > use.month:
            use.alerted = 0
        use.used, use.month, use.at = used, max(use.month, month), max(use.at, at)

    def _in_month(self, use: BudgetUse, index: int, until: float) -> MonthUse:
        """Return the usage of a project in a month up to the time `until`. `index` is the index of the month
        in `Calendar.starts`. The resources that the project holds must not have changed since `use.at`.
        """
        begin = max(use.at, self.rules.calendar.start(index))
        seconds = max(0.0, min(until, self.rules.calendar.start(index + 1)) - begin)
        before = use.used if index == use.month else MonthUse()
        gpu_s, money = before.gpu_s, before.money
        for model, milli in sorted(use.milli.items()):
            more = milli / WHOLE_GPU * seconds
            gpu_s += more
            money += more / HOUR_S * self.rules.price_of(model)
        return MonthUse(gpu_s, money + seconds / HOUR_S * self._host_price(use))

    def _host_price(self, use: BudgetUse) -> float:
        """Return the price of one hour of the CPUs and the memory that a project holds."""
        rules = self.rules
        return use.cpu_milli / 1_000 * rules.cpu_price + use.memory_mib / MIB_OF_GIB * rules.memory_price

    def standing(self, project: str, now: float) -> BudgetStanding | None:
        """Return the usage and the budget of a project in the present month; None if the project has no
        budget.
        """
        budget = self.rules.budgets.get(project)
        if budget is None:
            return None
        calendar = self.rules.calendar
        month = calendar.index(now)
        use = self.uses.get(project) or BudgetUse(month, now)
        used = self._in_month(use, month, now)
        before = self._before(use, month, now) if month else None
        return BudgetStanding(
            project,
            calendar.name(month),
            calendar.start(month + 1),
            used.gpu_s / HOUR_S,
            used.money,
            _with_carry(
                budget.gpu_hours, budget.carry_over, None if before is None else before.gpu_s / HOUR_S
            ),
            _with_carry(budget.money, budget.carry_over, None if before is None else before.money),
            self.rules.currency,
        )

    def _before(self, use: BudgetUse, month: int, now: float) -> MonthUse | None:
        """Return the usage of a project in the month before the month with the index `month`. Return None if
        that usage is not known.
        """
        stored = use.past.get(self.rules.calendar.name(month - 1))
        if stored is not None or use.month >= month:
            return stored
        return self._in_month(use, month - 1, now)

    def spent(self, project: str, now: float) -> BudgetSpent | None:
        """Return the reason why no job of the project may start: its budget is used up, and scheduler.toml
        stops the jobs in this case. Return None if the jobs may start.
        """
        budget = self.rules.budgets.get(project) if self.stops else None
        if budget is None or budget.then is not BudgetAction.STOP:
            return None
        standing = self.standing(project, now)
        if standing is None or standing.part < 1.0:
            return None
        return BudgetSpent(standing, standing.ends_at - now)

    def comes_last(self, project: str, now: float) -> bool:
        """Return whether the jobs of the project come after the jobs of all other projects because of a
        used-up budget.
        """
        budget = self.rules.budgets.get(project) if self.lowers else None
        if budget is None or budget.then is not BudgetAction.LOW:
            return False
        standing = self.standing(project, now)
        return standing is not None and standing.part >= 1.0

    def due(self, now: float) -> list[tuple[BudgetStanding, int]]:
        """Return the alerts that must be recorded now, as (usage and budget of a project, percentage of
        ALERTS). If a project has reached several percentages, return only the highest one. Leave out an alert
        that is recorded already.
        """
        found: list[tuple[BudgetStanding, int]] = []
        if self.next_at > now:
            return found
        self._next_at, self._checked_at = None, now
        for project in sorted(self.rules.budgets):
            standing = self.standing(project, now)
            if standing is not None:
                reached = [each for each in ALERTS if self._reached(standing, each)]
                if reached and reached[-1] > self._alerted(project, now):
                    found.append((standing, reached[-1]))
        return found

    @staticmethod
    def _reached(standing: BudgetStanding, percent: int) -> bool:
        # Subtract a small number because of rounding errors: the time of the next alert is the result of a
        # division.
        return standing.part * 100 >= percent - 1e-6

    def _alerted(self, project: str, now: float) -> int:
        use = self.uses.get(project)
        return use.alerted if use is not None and use.month == self.rules.calendar.index(now) else 0

    def note_alert(self, project: str, percent: int, at: float) -> None:
        """Record an alert: in the month of the time `at`, the project has used this percentage of its
        budget.
        """
        use = self._use(project, at)
        self._advance(use, at)
        use.alerted = percent
        self._next_at = None

    @property
    def next_at(self) -> float:
        """The time at which `due` must be called next. NEVER if no project with a budget uses GPUs, CPUs or
        memory.
        """
        if self._next_at is None:
            self._next_at = min(
                (self._next_alert(project) for project in self.rules.budgets if project in self.uses),
                default=NEVER,
            )
        return self._next_at

    def _next_alert(self, project: str) -> float:
        """Return the time of the project's next alert, or the beginning of the next month if that is earlier.
        Return NEVER if the project uses nothing that its budget counts and no alert is due now.
        """
        use = self.uses[project]
        # `use.at` is the time of the last start or end of a job. This time can be in an earlier month.
        since = max(use.at, self._checked_at)
        standing, alerted = self.standing(project, since), self._alerted(project, since)
        level = next((each for each in ALERTS if each > alerted), None)
        if standing is None:
            return NEVER
        gpus = sum(use.milli.values()) / WHOLE_GPU
        prices = sum(
            milli / WHOLE_GPU * self.rules.price_of(model) for model, milli in sorted(use.milli.items())
        )
        if level is not None and self._reached(standing, level):
            return since
        prices += self._host_price(use)
        times = [standing.ends_at] if gpus or prices else []
        pairs = (
            (standing.gpu_hours, standing.gpu_hours_limit, gpus),
            (standing.money, standing.money_limit, prices),
        )
        for used, limit, per_hour in pairs:
            if level is not None and limit is not None and per_hour > 0:
                times.append(since + max(0.0, limit * level / 100 - used) / per_hour * HOUR_S)
        return min(times, default=NEVER)

    def dump(self, project: str) -> dict[str, Any]:
        """Return the usage of a project as JSON data for the database."""
        use = self.uses[project]
        past = {name: [each.gpu_s, each.money] for name, each in use.past.items()}
        used = [use.used.gpu_s, use.used.money]
        return {"at": use.at, "used": used, "past": past, "alerted": use.alerted}

    def load(self, project: str, body: Mapping[str, Any]) -> None:
        """Restore the usage of a project from the JSON data that `dump` returned."""
        past = {name: MonthUse(*each) for name, each in body["past"].items()}
        month = self.rules.calendar.index(body["at"])
        self.uses[project] = BudgetUse(month, body["at"], MonthUse(*body["used"]), past, body["alerted"])


def _with_carry(limit: float | None, carry_over: float, before: float | None) -> float | None:
    if limit is None or before is None:
        return limit
    return limit + min(max(0.0, limit - before), carry_over * limit)
