"""The oracle: records the processes that really ran and checks the numbered guarantees."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.core.model.job import Job, Member
from wire.agent.orders import Start
from wire.agent.reports import AttemptStatus, NodeFacts
from wire.job.gangs import MemberFailure
from wire.names import WHOLE_GPU, JobState

LOST = ("node_lost", "supervisor_lost")
"""Reasons of ends whose exit code is unknown."""


class GuaranteeBroken(Exception):
    """A guarantee, by number and name, and how it was broken."""

    def __init__(self, promise: str, how: str) -> None:
        super().__init__(f"{promise}: {how}")
        self.promise = promise
        self.how = how


@dataclass(slots=True)
class ProcessRecord:
    """One process on one host, from start to end."""

    order: Start
    host: str
    status: AttemptStatus
    over: bool = False
    lost: bool = False
    """It ended with its host."""
    forgotten: bool = False
    """Its exit code can never be known."""
    given_up: bool = False
    """The controller recorded it as lost without knowing its end."""

    heard: bool = False
    """The controller has committed its end."""

    @property
    def good(self) -> bool:
        """Return whether the process returned 0 and was not stopped."""
        return self.over and not self.lost and self.status.code == 0 and not self.status.why

    @property
    def known(self) -> bool:
        """Return whether the process succeeded and was not declared lost."""
        return self.good and not self.given_up


@dataclass
class GuaranteeOracle:
    """All processes that ever ran, by job."""

    runs: dict[int, list[ProcessRecord]] = field(default_factory=lambda: defaultdict(list))
    alive: dict[str, list[ProcessRecord]] = field(default_factory=lambda: defaultdict(list))
    licences: Mapping[str, int] = field(default_factory=dict)
    """Total of each licence."""
    licences_of: Callable[[int], Mapping[str, int]] = lambda _job: {}
    """Licences of each job."""

    def begins(self, order: Start, host: str, facts: NodeFacts, status: AttemptStatus) -> ProcessRecord:
        """Record the start of a process and check that it may start."""
        run = ProcessRecord(order, host, status)
        self._once_at_a_time(run)
        self._never_after_success(run)
        self.runs[order.job].append(run)
        self.alive[host].append(run)
        self._within_capacity(host, facts)
        self._within_licences()
        return run

    def hear(self, told: Iterable[tuple[str, AttemptStatus]]) -> None:
        """The controller has committed these ends."""
        for host, status in told:
            for run in self.runs.get(status.job, ()):
                if (run.order.attempt, run.host) == (status.attempt, host):
                    run.heard = True

    def give_up(self, gone: Iterable[tuple[int, int, str]]) -> None:
        """The controller declared these lost; ends that it had not received can never be known."""
        for job, attempt, host in gone:
            for run in self.runs.get(job, ()):
                if (run.order.attempt, run.host) == (attempt, host) and not run.heard:
                    run.given_up = run.forgotten = True

    def ends(self, run: ProcessRecord, status: AttemptStatus, *, lost: bool = False) -> None:
        """Record the end of a process."""
        run.status, run.over, run.lost = status, True, lost
        self.alive[run.host].remove(run)

    def _once_at_a_time(self, run: ProcessRecord) -> None:
        order = run.order
        for other in self.runs[order.job]:
            # A process on a node that the elastic job has left is no member any more.
            members = {run.host, other.host} if _elastic(order) else _nodes(order)
            together = other.order.attempt == order.attempt and {run.host, other.host} <= members
            if not other.over and not (together and other.host != run.host):
                raise GuaranteeBroken(
                    "2 no job runs twice at once",
                    f"{_name(order)} begins on {run.host} while {_name(other.order)} runs on {other.host}",
                )
            if other.order.attempt > order.attempt:
                raise GuaranteeBroken(
                    "2 attempts only grow", f"{_name(order)} begins after {_name(other.order)}"
                )

    def _never_after_success(self, run: ProcessRecord) -> None:
        good: dict[int, set[str]] = defaultdict(set)
        order = run.order
        for other in self.runs[order.job]:
            attempt = other.order.attempt
            if other.known:
                good[attempt].add(other.host)
            if attempt == order.attempt and other.host == run.host and not other.good:
                raise GuaranteeBroken(
                    "2 an attempt begins once on a host", f"{_name(order)} begins on {run.host} once more"
                )
            again = attempt == order.attempt and other.host == run.host
            # Members that joined an elastic job later may have failed or not started yet.
            if again or (not _elastic(order) and good[attempt] >= _nodes(other.order)):
                raise GuaranteeBroken(
                    "3 a success is never run again",
                    f"{_name(run.order)} begins on {run.host}, but attempt {attempt} has succeeded",
                )

    def _within_capacity(self, host: str, facts: NodeFacts) -> None:
        held: dict[str, int] = defaultdict(int)
        orders = [run.order for run in self.alive[host]]
        for order in orders:
            for gpu in order.gpus:
                held[gpu.uuid] += gpu.milli
        crowd = ", ".join(_name(order) for order in orders)
        for uuid, milli in held.items():
            if milli > WHOLE_GPU:
                raise GuaranteeBroken(
                    "5 a GPU is never held twice", f"{uuid} has {milli}/{WHOLE_GPU}: {crowd}"
                )
        for what, there in (
            ("cpu_milli", facts.cpu_milli),
            ("memory_mib", facts.memory_mib),
            ("scratch_mib", facts.storage_mib),
        ):
            if sum(getattr(order, what) for order in orders) > there:
                how = f"{host} has {what} {there}, which is not enough for {crowd}"
                raise GuaranteeBroken("5 sums within capacity", how)

    def _within_licences(self) -> None:
        used: Counter[str] = Counter()
        for job in {run.order.job for runs in self.alive.values() for run in runs}:
            used.update(self.licences_of(job))
        for name, count in used.items():
            if count > self.licences.get(name, 0):
                raise GuaranteeBroken(
                    "5 sums within capacity",
                    f"{count} licences {name} are in use, of {self.licences.get(name, 0)}",
                )

    # --- at the end ---

    def compare(self, job: Job) -> None:
        """Check that the recorded outcome equals what the processes returned."""
        if not job.state.terminal:
            raise GuaranteeBroken(
                "1 every acknowledged job ends", f"job {job.id} is {job.state.value} for ever"
            )
        for member in job.members.values():
            if (how := self._differs(job, member)) is not None:
                node = member.allocation.node
                raise GuaranteeBroken(
                    "7 the outcome is what the process returned", f"job {job.id} on {node}: {how}"
                )
        well = sum(not member.failed for member in job.members.values())
        good = 0 < well >= _needed(job)
        if good != (job.state is JobState.COMPLETED):
            raise GuaranteeBroken(
                "7 the outcome is what the process returned",
                f"job {job.id} is {job.state.value}, good={good}",
            )

    def _differs(self, job: Job, member: Member) -> str | None:
        told = (member.code, member.signal, member.why)
        runs = [
            run
            for run in self.runs[job.id]
            if run.order.attempt == job.attempt and run.host == member.allocation.node
        ]
        if not runs:
            ran = member.code is not None or member.signal is not None or not member.why
            return f"the record says {told}, but no process ever ran" if ran else None
        last = runs[-1]
        returned = (last.status.code, last.status.signal, last.status.why)
        if told == returned and not last.lost:
            return None
        # Unknown ends must be recorded as lost, or as ended without a code.
        unknown = last.lost or last.forgotten or member.why.startswith(LOST)
        if unknown and member.why and member.code is None and member.signal is None:
            return None
        return f"the record says {told}, the process {'died with its host' if last.lost else returned}"

    def leftovers(self) -> Iterator[ProcessRecord]:
        """Processes that still run."""
        for runs in self.alive.values():
            yield from runs


def _needed(job: Job) -> int:
    """Number of members that must succeed: all, unless the gang continues without failed ones."""
    gang = job.spec.gang
    least = gang.min_nodes if gang.on_failure is MemberFailure.CONTINUE else None
    return least or len(job.members)


def _name(order: Start) -> str:
    return f"attempt {order.attempt} of job {order.job}"


def _elastic(order: Start) -> bool:
    return "CORRAL_MIN_NODES" in order.env


def _nodes(order: Start) -> set[str]:
    return set(order.env["CORRAL_NODES"].split(","))
