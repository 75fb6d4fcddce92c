"""Moving running jobs elsewhere: proposed with cost and benefit, done when told and still as proposed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from controller.core import inputs
from controller.core.cycle import Cycle
from controller.core.events import Event, MovePlanned, PreemptionPlanned, RebalancePlanned, Victim
from controller.core.gathering import gathering
from controller.core.inputs import Accepted, Refusal, Reply
from controller.core.jobs import Job
from controller.core.levelling import levelling
from controller.core.movers import Movers
from controller.core.placement import Placer
from controller.core.plugin import Backfill
from controller.core.promises import holds_promise
from controller.core.proposals import DEFRAGMENT, DRAIN, KINDS, LOAD, Proposal
from controller.core.relief import draining, making_room
from controller.core.standing import placing
from controller.core.state import State
from wire.text import plain
from wire.words import Reason

STRATEGY = "rebalancing"
"""What a plan to make room names as its strategy if those who make it are moved."""
AUTO = "corral"
"""Who moves jobs where that is done without being told."""
MOST_CLASSES = 16
"""Classes of waiting jobs whose first is looked at."""
IN_ORDER = (Backfill.NONE, Backfill.CONSERVATIVE)
"""Nobody is helped past the first in the queue: nobody may pass, or everybody has a promise."""
OFF = 'An operator sets [rebalance] mode = "propose" or "auto" in scheduler.toml.'


class Rebalancing:
    """Proposes from the state as it is, and remembers nothing."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        cycle: Cycle,
        record: Callable[[Event], None],
        stop: Callable[..., None],
    ) -> None:
        self._state = state
        self._placer = placer
        self._cycle = cycle
        self._record = record
        self._stop = stop
        self.rules = placer.pipeline.rebalance

    def run(self, given: inputs.Rebalance, now: float) -> Reply:
        """Do one proposal, or one after the other all there are; each is worked out from the state anew."""
        if self.rules.mode == "off":
            return Refusal("conflict", "rebalancing is off on this cluster", hint=OFF)
        if given.proposal:
            found = next((each for each in self.proposals(now) if each.id == given.proposal), None)
            if found is None:
                message = f"there is no proposal {plain(given.proposal)} (any more)"
                return Refusal(
                    "not_found", message, "proposal", "'corral rebalance' shows what there is now."
                )
            self._do(found, given.by, now)
            return Accepted(tuple(move.job for move in found.moves))
        moved: list[int] = []
        while (best := next(self._proposals(now), None)) is not None:
            self._do(best, given.by, now)
            moved += [move.job for move in best.moves]
        return Accepted(tuple(moved))

    def proposals(self, now: float) -> list[Proposal]:
        """Everything worth doing now, each by itself: for those who wait, in their order, then for nodes."""
        return list(self._proposals(now))

    def _proposals(self, now: float) -> Iterator[Proposal]:
        rules, state = self.rules, self._state
        most = self._most_moves(now)
        if rules.mode == "off" or most <= 0 or not any(node.held for node in state.nodes.by_name.values()):
            return
        movers = Movers(state, self._placer, rules)
        first, waiting = self._waiting(now)
        for proposal in self._found(movers, waiting, most, now):
            if proposal.pays(rules) and (
                first is None
                or proposal.for_job == first.id
                or holds_promise(state, self._placer, self._cycle.mode, first, proposal, now)
            ):
                yield proposal

    def _found(self, movers: Movers, waiting: list[Job], most: int, now: float) -> Iterator[Proposal]:
        kinds = [kind for kind in KINDS if kind in self.rules.kinds]
        if DEFRAGMENT in kinds:
            for job in waiting:
                yield from making_room(movers, job, most, now)
        if DRAIN in kinds:
            yield from draining(movers, most, now)
        if DEFRAGMENT in kinds and not len(self._state.queue) and not self._state.claims:
            yield from gathering(movers, most, now)
        if LOAD in kinds:
            yield from levelling(movers, most, now)

    def _waiting(self, now: float) -> tuple[Job | None, list[Job]]:
        """The first that cannot start, and of each class the first that only lacks room, in their order."""
        state, cycle = self._state, self._cycle
        place = placing(state, cycle.queue, now)
        heads = [head for lane in state.queue if (head := lane.head()) is not None]
        heads.sort(key=place)
        first: Job | None = None
        found: list[Job] = []
        for _, number in heads[:MOST_CLASSES]:
            job = state.jobs[number]
            if cycle.allowance.over(job, now) is not None:
                continue
            short = state.licences.short(job.ask.licences)
            if short or self._placer.find(job.ask, state.barred(job, now)) is None:
                first = first or job
                if not short and (first is job or cycle.mode not in IN_ORDER):
                    found.append(job)
        return first, found

    def _most_moves(self, now: float) -> int:
        """How many more jobs may be moved now: by these rules, and by the rate at which any may be ended."""
        state, guards = self._state, self._placer.pipeline.guards
        under_way = sum(1 for job in state.claims if state.jobs[job].move is not None)
        recent = state.preempted_at
        ended = len(recent) - bisect_right(recent, now, key=lambda at: at + guards.window_s)
        return min(self.rules.max_moves - under_way, guards.rate - ended)

    def _do(self, proposal: Proposal, by: str, now: float) -> None:
        """Keep all places first, then tell the jobs to leave."""
        moves, number = proposal.moves, proposal.id
        self._record(
            RebalancePlanned(
                now,
                number,
                proposal.kind,
                by,
                tuple(move.job for move in moves),
                proposal.gpu_hours,
                proposal.worth,
                proposal.for_job,
                proposal.node,
            )
        )
        if proposal.for_job is not None:
            victims = tuple(
                Victim(move.job, move.gpu_hours, move.attempt)
                for move in sorted(moves, key=lambda each: each.job)
            )
            self._record(
                PreemptionPlanned(
                    proposal.for_job,
                    now,
                    proposal.place,
                    proposal.quality,
                    victims,
                    STRATEGY,
                    proposal.until,
                )
            )
        self._order(proposal, now)

    def _order(self, proposal: Proposal, now: float) -> None:
        for move in proposal.moves:
            self._record(
                MovePlanned(
                    move.job,
                    now,
                    move.attempt,
                    move.target,
                    move.quality,
                    proposal.id,
                    proposal.kind,
                    move.gpu_hours,
                    move.until,
                    proposal.for_job,
                    proposal.node,
                )
            )
        for move in proposal.moves:
            job = self._state.jobs[move.job]
            self._stop(job, Reason.PREEMPTED, f"{STRATEGY} {proposal.id}", now, move.until)


def history_of(jobs: Iterable[Job], most: int) -> list[tuple[Job, int]]:
    """The latest moves of these jobs, newest first: the job, and which of its moves."""
    moves = [(job, index) for job in jobs for index in range(len(job.moves))]
    moves.sort(key=lambda each: (each[0].moves[each[1]].at, each[0].id), reverse=True)
    return moves[:most]
