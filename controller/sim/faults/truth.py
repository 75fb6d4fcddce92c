"""What really ran, and the promises it is held against: the numbers are those of the design."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.core.jobs import Job, Member
from wire.frames import AttemptStatus, NodeFacts, Start
from wire.gangs import MemberFailure
from wire.words import WHOLE_GPU, JobState

LOST = ("node_lost", "supervisor_lost")
"""Whys of ends of which nobody saw what the process returned."""


class PromiseBroken(Exception):
    """A promise, by its number and name, and how it was broken."""

    def __init__(self, promise: str, how: str) -> None:
        super().__init__(f"{promise}: {how}")
        self.promise = promise
        self.how = how


@dataclass(slots=True)
class Run:
    """One process on one host, from its beginning to its end, whoever knows of it."""

    order: Start
    host: str
    status: AttemptStatus
    over: bool = False
    lost: bool = False
    """It died with its host."""
    forgotten: bool = False
    """Nobody will ever learn how it ended."""
    given_up: bool = False
    """The record says that it was lost, by who could not know better."""

    heard: bool = False
    """The controller was told how it ended, and kept it."""

    @property
    def good(self) -> bool:
        """It returned 0, and by itself."""
        return self.over and not self.lost and self.status.code == 0 and not self.status.why

    @property
    def known(self) -> bool:
        """So it did, and nobody has said that it was lost."""
        return self.good and not self.given_up


@dataclass
class Truth:
    """Every process there ever was, by job."""

    runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    alive: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    licences: Mapping[str, int] = field(default_factory=dict)
    """How many there are of each."""
    licences_of: Callable[[int], Mapping[str, int]] = lambda _job: {}
    """What a job has of them."""

    def begins(self, order: Start, host: str, facts: NodeFacts, status: AttemptStatus) -> Run:
        """A process begins: may it?"""
        run = Run(order, host, status)
        self._once_at_a_time(run)
        self._never_after_success(run)
        self.runs[order.job].append(run)
        self.alive[host].append(run)
        self._within_capacity(host, facts)
        self._within_licences()
        return run

    def hear(self, told: Iterable[tuple[str, AttemptStatus]]) -> None:
        """The controller has kept these ends."""
        for host, status in told:
            for run in self.runs.get(status.job, ()):
                if (run.order.attempt, run.host) == (status.attempt, host):
                    run.heard = True

    def give_up(self, gone: Iterable[tuple[int, int, str]]) -> None:
        """The controller takes these for lost: what it had not heard by then nobody will know."""
        for job, attempt, host in gone:
            for run in self.runs.get(job, ()):
                if (run.order.attempt, run.host) == (attempt, host) and not run.heard:
                    run.given_up = run.forgotten = True

    def ends(self, run: Run, status: AttemptStatus, *, lost: bool = False) -> None:
        """A process is gone."""
        run.status, run.over, run.lost = status, True, lost
        self.alive[run.host].remove(run)

    def _once_at_a_time(self, run: Run) -> None:
        order = run.order
        for other in self.runs[order.job]:
            # What an elastic job runs on a node that it has left meanwhile is no member of those that came.
            members = {run.host, other.host} if _elastic(order) else _nodes(order)
            together = other.order.attempt == order.attempt and {run.host, other.host} <= members
            if not other.over and not (together and other.host != run.host):
                raise PromiseBroken(
                    "2 no job runs twice at once",
                    f"{_name(order)} begins on {run.host} while {_name(other.order)} runs on {other.host}",
                )
            if other.order.attempt > order.attempt:
                raise PromiseBroken(
                    "2 attempts only grow", f"{_name(order)} begins after {_name(other.order)}"
                )

    def _never_after_success(self, run: Run) -> None:
        good: dict[int, set[str]] = defaultdict(set)
        order = run.order
        for other in self.runs[order.job]:
            attempt = other.order.attempt
            if other.known:
                good[attempt].add(other.host)
            if attempt == order.attempt and other.host == run.host and not other.good:
                raise PromiseBroken(
                    "2 an attempt begins once on a host", f"{_name(order)} begins on {run.host} once more"
                )
            again = attempt == order.attempt and other.host == run.host
            # Who has come to an elastic job since then may have failed, or be about to begin.
            if again or (not _elastic(order) and good[attempt] >= _nodes(other.order)):
                raise PromiseBroken(
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
                raise PromiseBroken("5 a GPU is never held twice", f"{uuid} has {milli}/{WHOLE_GPU}: {crowd}")
        for what, there in (
            ("cpu_milli", facts.cpu_milli),
            ("memory_mib", facts.memory_mib),
            ("scratch_mib", facts.storage_mib),
        ):
            if sum(getattr(order, what) for order in orders) > there:
                how = f"{host} has {what} {there}, which is not enough for {crowd}"
                raise PromiseBroken("5 sums within capacity", how)

    def _within_licences(self) -> None:
        used: Counter[str] = Counter()
        for job in {run.order.job for runs in self.alive.values() for run in runs}:
            used.update(self.licences_of(job))
        for name, count in used.items():
            if count > self.licences.get(name, 0):
                raise PromiseBroken(
                    "5 sums within capacity",
                    f"{count} licences {name} are in use, of {self.licences.get(name, 0)}",
                )

    # --- once all is over ---

    def compare(self, job: Job) -> None:
        """The outcome on record is what the processes returned."""
        if not job.state.terminal:
            raise PromiseBroken(
                "1 every acknowledged job ends", f"job {job.id} is {job.state.value} for ever"
            )
        for member in job.members.values():
            if (how := self._differs(job, member)) is not None:
                node = member.allocation.node
                raise PromiseBroken(
                    "7 the outcome is what the process returned", f"job {job.id} on {node}: {how}"
                )
        well = sum(not member.failed for member in job.members.values())
        good = 0 < well >= _needed(job)
        if good != (job.state is JobState.COMPLETED):
            raise PromiseBroken(
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
        # What nobody can know any more is recorded as lost, or as ended without a result.
        unknown = last.lost or last.forgotten or member.why.startswith(LOST)
        if unknown and member.why and member.code is None and member.signal is None:
            return None
        return f"the record says {told}, the process {'died with its host' if last.lost else returned}"

    def leftovers(self) -> Iterator[Run]:
        """Processes that still run."""
        for runs in self.alive.values():
            yield from runs


def _needed(job: Job) -> int:
    """How many members have to end well: all, if the others do not go on without them."""
    gang = job.spec.gang
    least = gang.min_nodes if gang.on_failure is MemberFailure.CONTINUE else None
    return least or len(job.members)


def _name(order: Start) -> str:
    return f"attempt {order.attempt} of job {order.job}"


def _elastic(order: Start) -> bool:
    return "CORRAL_MIN_NODES" in order.env


def _nodes(order: Start) -> set[str]:
    return set(order.env["CORRAL_NODES"].split(","))
