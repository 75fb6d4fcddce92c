"""Rebalancing: proposes moves of running jobs, with their cost and gain, and carries out proposals."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from controller.core.backfill.cycle import Cycle
from controller.core.framework.interfaces import Reserves
from controller.core.model.decision.decision import Accepted, Refusal, Reply
from controller.core.model.events.event import Event
from controller.core.model.events.nominations import MovePlanned, PreemptionPlanned, RebalancePlanned, Victim
from controller.core.model.inputs import policy_inputs
from controller.core.model.job import Job
from controller.core.placement.placer import Placer
from controller.core.rebalance.head_delay_check import keeps_head_start
from controller.core.rebalance.move_search import MoveSearch
from controller.core.rebalance.proposals import Proposal, RebalanceRules
from controller.core.rebalance.strategies import STRATEGIES
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.order_view import position_key
from controller.core.state.state import State
from wire.names import Reason
from wire.text import printable

STRATEGY = "rebalancing"
"""In events with the name of a preemption strategy, this name stands for rebalancing."""
AUTO = "corral"
"""The user name under which moves in mode `auto` are recorded."""
MOST_CLASSES = 16
"""Proposals are searched for the first waiting jobs of at most this many lanes (lists of waiting jobs with
equal requests).
"""
OFF = 'An operator sets [rebalance] mode = "propose" or "auto" in scheduler.toml.'


class Rebalancer:
    """Finds proposals in the present state, and carries proposals out. The object keeps no data between two
    calls.

    1. Take the first job of each lane (list of waiting jobs with equal requests), in queue order. Find the
       first of these jobs that does not fit. Also take the later jobs among them that lack free nodes but no
       licences.
    2. Collect the proposals of each strategy (strategies.py) of a configured kind, in order of preference.
    3. Drop a proposal whose gain is too small for its cost. Also drop a proposal that would delay the first
       waiting job.
    4. To carry out a proposal, reserve the new nodes of all its jobs first and then stop the jobs.

    Invariant: at most `max_moves` jobs are being moved at a time. Moves count for the rate limit of
    preemption.

    Example: job 7 wants a whole node and would start in 3 hours. A proposal moves two jobs that have just
    saved a checkpoint, so the moves cost only 0.1 GPU-hours of lost work. Job 7 then starts in 2 minutes. The
    gain is 8 GPUs * 3 h = 24 GPU-hours.
    """

    def __init__(
        self,
        state: State,
        placer: Placer,
        cycle: Cycle,
        rules: RebalanceRules,
        record: Callable[[Event], None],
        stop: Callable[..., None],
    ) -> None:
        self._state = state
        self._placer = placer
        self._cycle = cycle
        self._record = record
        self._stop = stop
        self.rules = rules

    def run(self, request: policy_inputs.Rebalance, now: float) -> Reply:
        """Carry out the proposal with the requested id. Without an id, carry out the first proposal of
        `proposals`, and repeat this with the proposals that are then possible until there are none.
        """
        if self.rules.mode == "off":
            return Refusal("conflict", "rebalancing is off on this cluster", hint=OFF)
        if request.proposal:
            found = next((each for each in self.proposals(now) if each.id == request.proposal), None)
            if found is None:
                message = f"there is no proposal {printable(request.proposal)} (any more)"
                return Refusal(
                    "not_found", message, "proposal", "'corral rebalance' lists the present proposals."
                )
            self._do(found, request.by, now)
            return Accepted(tuple(move.job for move in found.moves))
        moved: list[int] = []
        while (best := next(self._proposals(now), None)) is not None:
            self._do(best, request.by, now)
            moved += [move.job for move in best.moves]
        return Accepted(tuple(moved))

    def proposals(self, now: float) -> list[Proposal]:
        """Return all present proposals, in order of preference. When one of them is carried out, the others
        may become invalid.
        """
        return list(self._proposals(now))

    def _proposals(self, now: float) -> Iterator[Proposal]:
        rules, state = self.rules, self._state
        most = self._most_moves(now)
        if rules.mode == "off" or most <= 0 or not any(node.held for node in state.nodes.by_name.values()):
            return
        first, waiting = self._waiting(now)
        search = MoveSearch(state, self._placer, rules, now, most, waiting)
        for kind, strategy in STRATEGIES:
            if kind not in rules.kinds:
                continue
            for proposal in strategy(search):
                if proposal.pays(rules) and (
                    first is None
                    or proposal.for_job == first.id
                    or keeps_head_start(state, self._placer, self._cycle.backfill, first, proposal, now)
                ):
                    yield proposal

    def _waiting(self, now: float) -> tuple[Job | None, list[Job]]:
        """Return (first job, jobs to help). The first job is the first waiting job that is within all quotas
        and limits but does not fit; None if there is none. The jobs to help lack free nodes but no licences,
        so moves of running jobs could let them start. Of jobs with equal requests, only the first is
        considered.
        """
        state, cycle = self._state, self._cycle
        place = position_key(state, cycle.queue, now)
        heads = [head for lane in state.queue if (head := lane.head()) is not None]
        heads.sort(key=place)
        # Move running jobs for a later waiting job only if backfill may start jobs before the first waiting
        # job, and only if not every waiting job has a reservation.
        helps_behind = cycle.backfill.starts_behind and cycle.backfill.reserves is not Reserves.ALL_JOBS
        first: Job | None = None
        found: list[Job] = []
        for _, number in heads[:MOST_CLASSES]:
            job = state.jobs[number]
            if cycle.limits.over(job, now) is not None:
                continue
            short = state.licences.insufficient(job.ask.licences)
            if short or self._placer.find(job.ask, barred_nodes(state, job, now)) is None:
                first = first or job
                if not short and (first is job or helps_behind):
                    found.append(job)
        return first, found

    def _most_moves(self, now: float) -> int:
        """Return how many jobs may be moved now under `max_moves` and the rate limit of preemption; 0 or less
        for none.
        """
        state, guards = self._state, self._placer.pipeline.guards
        under_way = sum(1 for job in state.claims if state.jobs[job].move is not None)
        recent = state.preempted_at
        ended = len(recent) - bisect_right(recent, now, key=lambda at: at + guards.window_s)
        return min(self.rules.max_moves - under_way, guards.rate - ended)

    def _do(self, proposal: Proposal, by: str, now: float) -> None:
        moves = proposal.moves
        jobs = tuple(move.job for move in moves)
        cost = proposal.gpu_hours, proposal.worth
        self._record(
            RebalancePlanned(
                now, proposal.id, proposal.kind, by, jobs, *cost, proposal.for_job, proposal.node
            )
        )
        if proposal.for_job is not None:
            by_id = sorted(moves, key=lambda each: each.job)
            victims = tuple(Victim(move.job, move.gpu_hours, move.attempt) for move in by_id)
            self._record(
                PreemptionPlanned(
                    proposal.for_job,
                    now,
                    proposal.target,
                    proposal.quality,
                    victims,
                    STRATEGY,
                    proposal.until,
                )
            )
        for move in moves:
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
        for move in moves:
            job = self._state.jobs[move.job]
            self._stop(job, Reason.PREEMPTED, f"{STRATEGY} {proposal.id}", now, move.until)


def move_history(jobs: Iterable[Job], most: int) -> list[tuple[Job, int]]:
    """Return the `most` latest moves of these jobs, the newest first, as (job, index of the move in
    `job.moves`).
    """
    moves = [(job, index) for job in jobs for index in range(len(job.moves))]
    moves.sort(key=lambda each: (each[0].moves[each[1]].at, each[0].id), reverse=True)
    return moves[:most]
