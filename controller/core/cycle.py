"""One pass over the queue: in order while jobs fit, then what may pass the first that does not."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

from controller.core.allowance import Allowance
from controller.core.columns import Bools
from controller.core.common import Common, Pledge
from controller.core.deadlines import Guarded
from controller.core.estimates import outlived
from controller.core.events import (
    DeadlineDoubted,
    JobGrew,
    JobPlaced,
    MoveUndone,
    PredictionOutlived,
    PreemptionDropped,
    PreemptionPlanned,
    StartEstimated,
)
from controller.core.foresight import PROMISE
from controller.core.gangs import ripe_from
from controller.core.jobs import NEVER, Job
from controller.core.moving import undone
from controller.core.passing import Walk
from controller.core.placement import Place, Placer, Shape
from controller.core.plan import Plan
from controller.core.plugin import Backfill, Deadlines
from controller.core.preemption import Preemption
from controller.core.queue import Entry, Lane, Placing
from controller.core.quotas import Over
from controller.core.shadow import Shadow, cast_shadow, find_beside
from controller.core.shares import Stopped
from controller.core.standing import placing
from controller.core.state import State
from controller.core.victims import GuardsOf
from wire.words import Reason

Step = (
    JobPlaced
    | PredictionOutlived
    | DeadlineDoubted
    | StartEstimated
    | JobGrew
    | PreemptionPlanned
    | PreemptionDropped
    | MoveUndone
)


class Cycle:
    """Runs passes. Between them it remembers the first waiting job and the promises made.

    As long as no room has appeared and the same job is first, whatever could not start in the last pass
    cannot start in this one, and only new jobs matter.
    """

    def __init__(
        self, state: State, placer: Placer, profile: str = "", guards_of: GuardsOf | None = None
    ) -> None:
        self.state = state
        self.placer = placer
        self.profile = profile
        self.queue = state.queues[profile]
        self.common: Common | None = None
        """What it keeps to on nodes that other profiles use as well; None: there are none."""
        self.mode = placer.pipeline.backfill
        self.head: Entry | None = None
        pipeline = placer.pipeline
        self.estimating = pipeline.estimating
        self.preemption = Preemption(state, placer, pipeline.strategies, pipeline.guards, guards_of)
        self.allowance = Allowance(state, placer)
        self.guarded = Guarded(state, placer, self.allowance, self.queue)
        self.placing: Placing | None = None
        """Where entries stand in this pass, if their order moves."""
        self._alone = Plan(state, placer, self.lasts)
        self._seen: tuple[int, ...] = ()
        self._shadow: Shadow | None = None
        self._cast = False
        self.needed = False
        """Has a pass asked for the promise, and not only somebody who reads?"""
        self._ripe_at = NEVER
        """When the next gang has waited long enough to start on fewer nodes."""
        self._now = 0.0
        self._latest = (0, NEVER)
        """The first waiting job, and the latest start ever promised to it."""

    def resume(self, other: Cycle) -> None:
        """Make good what another has promised; what it remembers beside that is worked out again."""
        self.plan.resume(other.plan)
        self._latest = other._latest
        self.allowance.again_at = other.allowance.again_at
        self.preemption.again_at = other.preemption.again_at

    def run(self, now: float, *, late: bool = False) -> Iterator[Step]:
        """Yield what is decided one by one; the caller makes each true before asking for the next.

        `late`: some run longer than was counted on, and are taken to run on.
        """
        queue = self.queue
        self.guarded.begin()
        yield from self._claimed(now)
        due = self.preemption.due(now) | self.allowance.due(now) | self._ripe(now) | late
        due |= self.common is not None and self.common.due(now)
        due |= self.lifts and bool(self.guarded.urgent(now))
        self._now = now
        fresh = [job for job in dict.fromkeys(queue.fresh) if job in queue]  # one may have come twice
        queue.fresh.clear()
        if not len(queue):
            yield from self._grow(now)
            return
        self.placing = placing(self.state, queue, now)
        if self.mode is Backfill.CONSERVATIVE:
            yield from self._make_room(now)
            if due or self._seen != self._sight():
                self._seen = self._sight()
                self.plan.retry()
            before = (-1, -1)
            while before != (others := (self.state.nodes.company.changes, len(self.plan.refused))):
                before = others  # who starts may be company for others, and who may not leaves them its room
                yield from self._as_planned(now)
        elif not due and self._nothing_changed(fresh):
            lanes = [(job, lane) for job in fresh if (lane := queue.lane(job)) is not None]
            yield from self._behind(Walk(self, lane, [queue.entry(job)], now) for job, lane in lanes)
        else:
            self.head, self._shadow = None, None
            self._cast = self.needed = False
            queue.forget_kept_out()
            yield from self._lift_urgent(now)
            yield from self._in_order(now)
            if self.common is not None:
                self.common.promise(None if self.mode is Backfill.GREEDY else self.head, now)
            self._seen = self._sight()
            if self.head is not None:
                yield from self._behind(list(self._hopeful(now)))
            if self.guards:
                yield from self.guarded.warnings(now)
        yield from self._foretell(now)
        if not len(queue):
            yield from self._grow(now)

    @property
    def again_at(self) -> float:
        """When somebody may start who cannot now, if nothing but time passes."""
        urgent_at = self.guarded.again_at(self._now) if self.lifts else NEVER
        return min(self.preemption.again_at, self.allowance.again_at, self._ripe_at, urgent_at)

    @property
    def guards(self) -> bool:
        """Is anything promised to those with deadlines?"""
        return self.placer.pipeline.deadlines is not Deadlines.NONE

    @property
    def lifts(self) -> bool:
        """Do they get it before those whose turn it is?"""
        return self.placer.pipeline.deadlines is Deadlines.LIFT

    def _ripe(self, now: float) -> bool:
        ripe = self._ripe_at <= now
        if ripe:
            self._ripe_at = NEVER
        return ripe

    def _grow(self, now: float) -> Iterator[JobGrew]:
        """Nobody waits: elastic jobs get what they miss, those that came first before the others."""
        if self.common is not None and len(self.state.queue):
            return
        for job in [self.state.jobs[each] for each in sorted(self.state.elastic)]:
            if self.state.queue_of(job) is not self.queue:
                continue
            missing = (job.ask.nodes or 0) - len(job.staying)
            if (
                missing <= 0
                or job.stopping is not None
                or job.ask.topology is not None
                or len(job.staying) < len(job.running)
                or job.finishing
            ):
                continue
            ranking = self.placer.ranking(job.ask.part)
            rows, nodes = ranking.in_order(self.state.barred(job, now)), self.state.nodes.rows
            # An agent runs an attempt once: where it was, it cannot come back to.
            free = [row for row in rows if nodes[row].name not in job.members][:missing]
            while free:
                place = self.placer.settle(Shape(job.ask.part, len(free)), sorted(free))
                if self.allowance.may_grow(job, place.allocations, now):
                    yield JobGrew(job.id, now, job.attempt, place.allocations)
                    break
                free.pop()

    def _foretell(self, now: float) -> Iterator[StartEstimated]:
        """What was promised to the first that waits is an estimate as well: the first one counts."""
        promise = self._shadow if self.needed else None
        if promise is None or promise.at == NEVER or promise.job not in self.state.queue:
            return
        if all(each.kind != PROMISE for each in self.state.jobs[promise.job].foreseen):
            yield StartEstimated(promise.job, now, PROMISE, promise.at)

    def outlived(self, now: float) -> Iterator[PredictionOutlived]:
        """Nobody is promised the room of a job that should be gone and is not."""
        if not self.estimating.predicted:
            return
        due = [job for _, job in takewhile(lambda each: each[0] <= now, self.state.releases)]
        for job in map(self.state.jobs.__getitem__, due):
            if job.planned_s is not None and job.placed_at is not None:
                elapsed = now - job.placed_at
                if job.planned_s <= elapsed:
                    yield PredictionOutlived(job.id, now, outlived(elapsed, job.limit))

    def lasts(self, job: Job) -> float:
        """How long plans count on a job that waits."""
        if not self.estimating.predicted:
            return job.limit
        predicted = self.state.estimates.predict(job, self.estimating)
        return job.limit if predicted is None else predicted

    def forget(self, job: int) -> None:
        """What was promised to a waiting job holds no longer: it asks for something else."""
        self.plan.forget(job)

    @property
    def plan(self) -> Plan:
        """Promises with a place: those of conservative backfill, and all on nodes that are shared."""
        return self._alone if self.common is None else self.common.plan

    def share(self, common: Common | None) -> None:
        """From now on some of its nodes are used by others as well, or none."""
        if common is not self.common:
            self.plan.forget_all()
            self.common, self.head, self._shadow = common, None, None
            self._cast = self.needed = False

    def promise(self, now: float) -> Pledge | None:
        """What is promised to the first waiting job."""
        if self.common is None:
            return self.shadow(now)
        return None if self.head is None else self.common.pledge(self.head[1])

    def shadow(self, now: float) -> Shadow | None:
        """The same where no other profile has a say; worked out when first asked for."""
        if self.common is not None:
            return None
        if not self._cast and self.head is not None and self.head[1] in self.queue:
            self._cast = True
            if self.mode is not Backfill.GREEDY:
                ask = self.state.jobs[self.head[1]].ask
                self._shadow = cast_shadow(self.state, self.placer, ask, self.head[1], now)
        return self._shadow

    def foresees(self, job: Job, now: float) -> bool:
        """Does a job that fits get its turn in the next cycle, if nothing happens before?"""
        if self.mode is Backfill.CONSERVATIVE:
            promised = self.plan.promises.get(job.id)
            return promised is None or promised.start <= now  # else it has not been looked at
        head = self.head
        if head is None or head[1] not in self.queue or head[1] == job.id:
            return True
        self.placing = placing(self.state, self.queue, now)
        if self.place(self.queue.entry(job.id)) < self.place(head):
            return True
        if self.common is not None and self.mode is not Backfill.NONE:
            return self._find(job, self.state.barred(job, now), now) is not None
        promise, shape = self.shadow(now), self.placer.shape(job.ask)
        if self.mode is Backfill.NONE or shape is None:
            return False
        if promise is None or now + job.limit <= self.until(promise):
            return True
        return find_beside(self.placer, shape, promise, self.state.barred(job, now)) is not None

    def until(self, promise: Shadow | None) -> float:
        """When whatever passes the first must be over, if nobody is to ask about the promise."""
        if promise is None:
            return NEVER
        if self.mode is not Backfill.AGGRESSIVE:
            return promise.at
        if self._latest[0] != promise.job:
            self._latest = promise.job, promise.at + self.placer.pipeline.max_delay_s
        return max(promise.at, self._latest[1])

    def _claimed(self, now: float) -> Iterator[Step]:
        """Start those for whom room was made, once it is free; let go of what has become of no use."""
        stirred = self._stirred()
        for job in stirred:
            if not job.claim:
                continue  # it was somebody's who goes back there
            over = None if job.unended else self.allowance.over(job, now)
            broken = str(over) if over else self.preemption.broken(job) or self._reserved(job, now)
            if broken and job.move is not None:
                yield from undone(self.state, self.placer, job, broken, now)
                stirred += [job] if job.claim else []  # it may start at once where it was
            elif broken:
                yield PreemptionDropped(job.id, now, broken)
            elif self.preemption.ready(job):
                yield self.placed(job.id, Place(job.claim, job.claim_quality), now)

    def _reserved(self, job: Job, now: float) -> str:
        """Why what is kept for a job must not be taken after all: a reservation that has come near."""
        barred = self.state.barred(job, now)
        rows = self.state.nodes.by_name
        lost = [each.node for each in job.claim if barred is not None and barred[rows[each.node].row]]
        return f"node {lost[0]} is reserved too soon" if lost else ""

    def _stirred(self) -> list[Job]:
        """Those for whom room is kept where something has happened; with reservations, time does as well."""
        stirred, claims = self.state.nodes.stirred, self.state.claims
        if not claims:
            return []
        if self.state.reservations:
            stirred.update(claims)
        found = [self.state.jobs[job] for job in sorted(stirred) if job in claims]
        mine = [job for job in found if self.state.queue_of(job) is self.queue]
        stirred.difference_update(job.id for job in mine)
        return mine

    def room_is_made(self) -> bool:
        """Does somebody start in the next pass in the room that was made for it?"""
        claims = self.state.claims
        return any(
            self.preemption.ready(self.state.jobs[job]) for job in self.state.nodes.stirred if job in claims
        )

    def _make_room(self, now: float) -> Iterator[Step]:
        """Let the first jobs have others ended, as long as they have to and may."""
        while len(self.queue):
            heads = [head for lane in self._allowed(now) if (head := lane.head()) is not None]
            if not heads:
                return
            _, job = min(heads, key=self.place)
            found = self.state.jobs[job]
            if self._find(found, self.state.barred(found, now), now) is not None:
                return
            if self._in_part(found, now) is not None:
                return
            step = self._plan_room(found, now)
            if step is None:
                return
            yield step

    def _nothing_changed(self, fresh: list[int]) -> bool:
        head, queue, place = self.head, self.queue, self.place
        if (
            head is None
            or head[1] not in queue
            or head[1] in fresh  # it asks for something else now
            or queue.entry(head[1]) != head
            or self._seen != self._sight()
        ):
            return False
        if self.placing is None:
            return all(queue.entry(job) > head for job in fresh)
        standing = place(head)  # new jobs are in lanes as well
        return all(place(first) >= standing for lane in queue if (first := lane.head()) is not None)

    def place(self, entry: Entry) -> Entry:
        """Where an entry stands in this pass."""
        return entry if self.placing is None else self.placing(entry)

    def _sight(self) -> tuple[int, ...]:
        """What must be as it was for those who could not start not to be looked at again."""
        state = self.state
        limits = state.quotas.edition, state.shares.edition
        promises = 0 if self.common is None else self.common.edition
        return state.nodes.gains, state.nodes.layout, state.reservations.edition, *limits, promises

    def _promised(self, now: float) -> Iterable[Lane]:
        """Lanes in which somebody may break no hard limit, if on fewer nodes."""
        if self.allowance.silent:
            return self.queue
        return [
            lane
            for lane in self.queue
            if (head := lane.head()) is not None
            and (
                (over := self.over(lane, head[1], now)) is None
                or over.alone
                or self.allowance.nodes_within(self.state.jobs[head[1]], now)
            )
        ]

    def _allowed(self, now: float) -> Iterable[Lane]:
        """Lanes whose first job breaks no hard limit."""
        if self.allowance.silent:
            return self.queue
        return [
            lane
            for lane in self.queue
            if (head := lane.head()) is not None and not self.over(lane, head[1], now)
        ]

    def over(self, lane: Lane, job: int, now: float) -> Over | Stopped | None:
        """The limit that keeps a job of this lane waiting, and as a rule all behind it in the lane."""
        over = self.allowance.over(self.state.jobs[job], now)
        if over is not None:
            self.queue.shut[lane] = over.reason
        return over

    def _as_planned(self, now: float) -> Iterator[JobPlaced]:
        entries = heapq.merge(*self._promised(now), key=self.placing)
        may = self.allowance.those_who_may(islice(entries, self.placer.pipeline.depth), now)
        self.plan.update(may, now)
        self._ripe_at = min(self._ripe_at, self.plan.ripe_after(now))
        for job, place in self.plan.due(now):
            found = self.state.jobs[job]
            over = self.allowance.over(found, now, len(place.allocations))
            free = over is None and not self.state.licences.short(found.ask.licences)
            if free and self.placer.takes(found.ask, place, self.state.barred(found, now)):
                yield self.placed(job, place, now)
            else:
                self.plan.refuse(job, now)

    def _in_order(self, now: float) -> Iterator[Step]:
        """Start the first job again and again, until the first neither fits nor may have others ended."""
        place = self.place
        heads = [(place(head), head, lane) for lane in self.queue if (head := lane.head()) is not None]
        heapq.heapify(heads)
        while heads:
            standing, head, lane = heads[0]
            if head[1] not in self.queue:  # it was lifted
                self._pass_over(heads, head)
                continue
            if self.placing is not None and (now_at := self.placing(head)) > standing:
                heapq.heapreplace(heads, (now_at, head, lane))  # others of its tenant have started meanwhile
                continue
            if not self.allowance.silent and (over := self.over(lane, head[1], now)) is not None:
                fewer = self._in_part(self.state.jobs[head[1]], now)
                if fewer is not None:
                    self.queue.shut.pop(lane, None)
                    yield self.placed(head[1], fewer, now)
                goes_on = fewer is not None or over.alone
                self._pass_over(heads, head if goes_on else None)
                continue
            first = self._whose_turn(head[1], now)
            found = self.find(self.queue.lane(first) or lane, first, now, guarded=self.lifts)
            step = self._otherwise(first, now) if found is None else self.placed(first, found, now)
            if step is None:
                self.head = self.queue.entry(first)
                return
            yield step
            if first == head[1]:
                self._pass_over(heads, head)

    def _lift_urgent(self, now: float) -> Iterator[JobPlaced]:
        """Those who start now or never come before all others."""
        for job in self.guarded.urgent(now) if self.lifts else ():
            lane = self.queue.lane(job)
            if lane is None or (not self.allowance.silent and self.over(lane, job, now) is not None):
                continue
            place = self.find(lane, job, now, guarded=True)
            if place is not None:
                yield self.placed(job, place, now)

    def _whose_turn(self, number: int, now: float) -> int:
        """The job itself; or whose deadline could no longer be met if this one took the only room for it."""
        while self.lifts:
            job = self.state.jobs[number]
            shape, barred = self.placer.shape(job.ask), self.state.barred(job, now)
            broken = self.guarded.against(job, now) if shape is not None else []
            if not broken or shape is None or self.placer.find(job.ask, barred) is None:
                break
            if self.placer.find(job.ask, self.guarded.kept_from(job, shape, barred, now)) is not None:
                break
            number = broken[0].job
        return number

    def _pass_over(self, heads: list[tuple[Entry, Entry, Lane]], head: Entry | None) -> None:
        """Go on with whoever is behind the lane's first; with nobody of it if nobody can be better off."""
        lane = heads[0][2]
        following = None if head is None else lane.after(head)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (self.place(following), following, lane))

    def _otherwise(self, number: int, now: float) -> JobPlaced | PreemptionPlanned | None:
        """What else there is for a job whose turn it is and who finds no place: fewer nodes, or victims."""
        job = self.state.jobs[number]
        fewer = self._in_part(job, now)
        return self._plan_room(job, now) if fewer is None else self.placed(number, fewer, now)

    def _in_part(self, job: Job, now: float) -> Place | None:
        """A place on fewer nodes for a gang that has waited long enough: as many as its tenants may have."""
        if job.ask.least is None or self.state.licences.short(job.ask.licences):
            return None
        ripe_at = ripe_from(job)
        if now < ripe_at:
            self._ripe_at = min(self._ripe_at, ripe_at)
            return None
        most = self.allowance.nodes_within(job, now)
        if not most:
            return None
        barred = self.state.barred(job, now)
        if self.common is not None:
            return self.common.find(job, barred, now, most)
        return self.placer.find_fewer(job.ask, barred, most)

    def _plan_room(self, job: Job, now: float) -> PreemptionPlanned | None:
        if not self.placer.pipeline.strategies or self.state.licences.short(job.ask.licences):
            return None  # without licences it could not start, whatever room it had
        return self.preemption.plan(job, now, self.promised_elsewhere(job, now))

    def promised_elsewhere(self, job: Job, now: float) -> Bools | None:
        """Nodes on which a job that others make room for might be in the way of a promise."""
        if self.common is None:
            return None
        return self.common.pinned(job, now + self.placer.pipeline.guards.grace_s + job.span, now)

    def _hopeful(self, now: float) -> Iterator[Walk]:
        """Through the classes of which one job at least may fit somewhere now."""
        gains, looked, most = self.state.nodes.gains, self.state.nodes.changes, self.state.nodes.most
        part, nodes = None, 0  # classes often differ in their number of nodes only
        for lane in self.queue:
            if lane.hope.blocked_at == gains:
                continue
            shape = self.placer.shape(lane.ask)
            if shape is not None and shape.part is not part:
                part = shape.part
                nodes = self.placer.at_most(part) if most.may_hold(part) else 0
            if shape is None or nodes < shape.nodes:
                lane.hope.block(gains)
            else:
                yield Walk(self, lane, lane, now, looked)

    def _behind(self, walks: Iterable[Walk]) -> Iterator[JobPlaced]:
        """Start what does not break the promise, best rank (or shortest) first."""
        if self.mode is Backfill.NONE:
            return
        waiting = [(key, number, walk) for number, walk in enumerate(walks) if (key := walk.advance())]
        heapq.heapify(waiting)
        while waiting:
            key, number, walk = waiting[0]
            if self.placing is not None and (standing := walk.key()) > key:
                heapq.heapreplace(waiting, (standing, number, walk))
                continue
            placed = walk.place()
            if placed is not None:
                yield placed
            key = walk.advance()
            if key is None:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (key, number, walk))

    def barred(self, number: int, now: float) -> Bools | None:
        """Where a job may not start because of reservations, or because others need the room in the end."""
        job = self.state.jobs[number]
        barred = self.state.barred(job, now)
        shape = self.placer.shape(job.ask) if self.guards else None
        return barred if shape is None else self.guarded.kept_from(job, shape, barred, now)

    def keep_out(self, number: int, now: float) -> None:
        """There is room for the job, but not where it may start."""
        job = self.state.jobs[number]
        barred = self.state.barred(job, now)
        reserved = barred is not None and self.placer.find(job.ask, barred) is None
        spared = self.guards and self.placer.find(job.ask, self.barred(number, now)) is None
        why = Reason.OTHERS_DEADLINE if spared else Reason.PROMISED
        self.queue.kept_out[number] = Reason.RESERVATION if reserved else why

    def find(self, lane: Lane, job: int, now: float, *, guarded: bool = False) -> Place | None:
        """A place for a job of a class; if it lacks room or licences it is blocked until some come free."""
        found = self.state.jobs[job]
        barred = self.barred(job, now) if guarded else self.state.barred(found, now)
        place = self._find(found, barred, now)
        kept = barred is not None or self.common is not None
        if place is None and kept and self.placer.fits(lane.ask):
            self.keep_out(job, now)
        elif place is None:
            lane.hope.block(self.state.nodes.gains)
        elif self.state.licences.short(lane.ask.licences):
            lane.hope.block(self.state.nodes.gains, Reason.LICENCE)
            return None
        return place

    def _find(self, job: Job, barred: Bools | None, now: float) -> Place | None:
        """A place for the job on nodes that are not barred, and promised to nobody else."""
        if self.common is None:
            return self.placer.find(job.ask, barred)
        return self.common.find(job, barred, now)

    def placed(self, number: int, place: Place, now: float) -> JobPlaced:
        """The fact, with how long the job is likely to run."""
        if self.common is not None:
            self.common.plan.forget(number)
        job = self.state.jobs[number]
        if self.guards and (shape := self.placer.shape(job.ask)) is not None:
            self.guarded.take(job, shape, place, now)
        predicted = self.state.estimates.predict(job, self.estimating)
        planned = predicted if self.estimating.predicted else None
        attempt, profile = job.attempt + 1, self.profile
        return JobPlaced(number, now, attempt, place.allocations, place.quality, predicted, planned, profile)
