"""One function: state, input and time in; facts, orders and an answer out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from controller.core import events, gangs, inputs, losses, moving, profiles, reserving
from controller.core.admission import added_labels, admit, over_quota, wrong_tenant
from controller.core.apply import apply
from controller.core.doctor import Doctor
from controller.core.edits import changed, edited, labels_of_queue
from controller.core.effects import Effect, SendToNode, SendToNodes, StartAttempt
from controller.core.events import Event, PreemptionPlanned
from controller.core.eviction import evicted, requeued
from controller.core.explain import explain, explain_never
from controller.core.foresight import worth_keeping
from controller.core.handover import elsewhere
from controller.core.heed import HEED_HINT, nobody_heeds, unheeded_taint
from controller.core.idling import Overseer, reclaimed
from controller.core.inputs import Accepted, Decision, Input, Refusal, Reply
from controller.core.jobs import Job
from controller.core.keeper import Keeper
from controller.core.launch import Launch, starts_of
from controller.core.licences import unobtainable
from controller.core.marks import mark_problem
from controller.core.nodes import JUST_STARTED
from controller.core.offqueue import rate_of
from controller.core.outcome import PREEMPTED, SHRUNK, goes_on, outcome_of, was_preempted
from controller.core.placement import Placer
from controller.core.plugin import Pipeline
from controller.core.preemption import UNGUARDED, NotAbove, Preemption
from controller.core.rebalancing import Rebalancing
from controller.core.requests import Ask, relaxed
from controller.core.restarts import restarted
from controller.core.saving import saved
from controller.core.schedulers import Schedulers
from controller.core.shares import share_problem
from controller.core.state import State
from wire.api import Why
from wire.frames import AttemptStatus, Settle, Stop
from wire.quota import Quota
from wire.quota import problems as problems_of_quota
from wire.spec import JobSpec, array_indices, problems, storable
from wire.text import counted
from wire.words import JobState, Reason

_STIRRING = (
    events.AttemptStarted,
    events.CheckpointSaved,
    events.MembersStarted,
    events.JobShrunk,
    events.JobGrew,
    events.JobEdited,
)
"""What changes how much a job would lose without changing what it holds."""

MAX_KEY = 200
"""Characters of an idempotency key."""


class Engine:
    """Decides. Holds the state it decides on and nothing that could not be worked out again from it."""

    def __init__(self, pipeline: Pipeline, state: State) -> None:
        self.pipeline = pipeline
        self.state = state
        state.divide(pipeline.profiles)
        state.adopt(pipeline.rules)
        self.schedulers = Schedulers(state, pipeline)
        self.cycle = self.schedulers.last
        self.placer = self.cycle.placer
        self._events: list[Event] = []
        self._effects: list[Effect] = []
        self.doctor = Doctor(state, pipeline.care, self._record, self._order)
        self.overseer = Overseer(state, pipeline.idling, self._record, self._order, self._stop)
        self.keeper = Keeper(state, pipeline.waiting, self._record, self._stop)
        self.rebalancing = Rebalancing(state, self.placer, self.cycle, self._record, self._stop)

    def handle(self, given: Input, now: float) -> Decision:
        """Decide one input. The state already holds the events that come back."""
        reply = _HANDLERS[type(given)](self, given, now)
        for fault in self.pipeline.watch.told():
            self._record(events.PluginFailed(now, fault.kind, fault.name, fault.why, fault.given_up))
        if self.keeper.restless:
            self.keeper.settle(now)
        decision = Decision(tuple(self._events), tuple(self._effects), reply)
        self._events.clear()
        self._effects.clear()
        return decision

    def explain(self, job: Job, now: float) -> Why:
        """Why the job is where it is."""
        cycle = self.schedulers.of(job)
        return explain(self.state, cycle.placer, cycle, job, now)

    def predicted(self, job: Job) -> float | None:
        """How long the job is likely to run, as was thought when it got its place, or as is thought now."""
        if job.state is JobState.QUEUED:
            return self.state.estimates.predict(job, self.pipeline.estimating)
        return job.predicted_s

    def _record(self, event: Event) -> None:
        apply(self.state, event)
        if isinstance(event, _STIRRING):
            self.schedulers.stir(event.job)
        if isinstance(event, events.JobRelaxed):
            self.schedulers.forget(event.job)
        self._events.append(event)
        self.keeper.notice(event)

    def _order(self, effect: Effect) -> None:
        self._effects.append(effect)

    # --- what users ask ---

    def _submit(self, given: inputs.Submit, now: float) -> Reply:
        known = self.state.keys.get((given.user, given.key)) if given.key else None
        if known:
            return Accepted(tuple(known))
        if not storable(given.key) or len(given.key) > MAX_KEY:
            return Refusal("invalid", f"must be Unicode text of at most {MAX_KEY} characters", "key")
        wrong = problems(given.spec)
        if wrong:
            where, message = wrong[0]
            return Refusal("invalid", message, where)
        spec = admit(self.pipeline.rules, given.spec, given.user)
        from_queue = () if isinstance(spec, Refusal) else added_labels(given.spec, spec)
        if not isinstance(spec, Refusal):
            spec = profiles.refuse(self.state.profiles, spec, given.user) or spec
        if not isinstance(spec, Refusal):
            spec = losses.with_lease(self.pipeline.losses, spec)
        admitted = spec if isinstance(spec, Refusal) else self.keeper.admit(spec, given.known, now)
        if isinstance(admitted, Refusal):
            return admitted
        spec = admitted.spec
        ask, indices = self.state.ask(spec), array_indices(spec.array) if spec.array is not None else [None]
        placer = self._placer_for(spec, given.user)
        refusal = self._never(placer, spec, ask, from_queue) or over_quota(
            self.state.quotas, placer, spec, ask, given.user, len(indices), now
        )
        if refusal is not None:
            return refusal
        first = self.state.next_job
        array = None if spec.array is None else first
        met, lost = admitted.met, admitted.lost
        for number, index in enumerate(indices):
            gates, job = admitted.gates_of(number), first + number
            self._record(
                events.JobQueued(
                    job, now, spec, given.user, given.key, array, index, gates, met, lost, from_queue
                )
            )
        return Accepted(tuple(range(first, first + len(indices))))

    def _placer_for(self, spec: JobSpec, user: str) -> Placer:
        """That of the profile which the job has, or will have."""
        return self.schedulers.named(profiles.profile_of(self.state.profiles, spec, user)).placer

    def _never(self, placer: Placer, spec: JobSpec, ask: Ask, from_queue: tuple[str, ...]) -> Refusal | None:
        """Why it could never start, not even when it does without what it can do without."""
        lacking = unobtainable(self.state.licences.total, ask.licences)
        if lacking is not None:
            return lacking
        refusal = explain_never(placer, ask)
        if refusal is not None and spec.relax:
            return explain_never(placer, self.state.ask(relaxed(spec, from_queue)))
        return refusal

    def _cancel(self, given: inputs.Cancel, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        if job is None:
            return _no_such_job(given.job)
        if job.state.terminal:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        if job.state is JobState.QUEUED:
            self._unclaim(job, f"cancelled by {given.by}", now)
            self._record(
                events.JobEnded(job.id, now, JobState.CANCELLED, Reason.USER, f"cancelled by {given.by}")
            )
        elif job.stopping is not Reason.USER:
            self._unclaim(job, f"cancelled by {given.by}", now)
            self._stop(job, Reason.USER, given.by, now)
        return Accepted((job.id,))

    def _stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        self._record(events.StopRequested(job.id, now, reason, by, until))
        for member in job.running:
            self._send_stop(job, member.allocation.node)

    def _send_stop(self, job: Job, node: str) -> None:
        grace, saving, why = job.spec.grace_s, 0.0, "cancelled"
        if job.stopping is Reason.MEMBER_FAILED:
            why = "member_failed"
        elif job.stopping is Reason.PREEMPTED:
            why = PREEMPTED
            grace = max(grace, self.schedulers.guards_of(job).grace_s)
            saving = job.spec.checkpoint_s if job.spec.saves else 0.0
        elif job.stopping in (Reason.EVICTED, Reason.IDLE):
            why, saving = job.stopping.value, job.spec.checkpoint_s if job.spec.saves else 0.0
        self._order(SendToNode(node, Stop(job.id, job.attempt, grace, why, saving)))

    def _preempt(self, given: inputs.Preempt, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        if job is None:
            return _no_such_job(given.job)
        if not job.unended:
            return Refusal("conflict", f"job {job.label} is {job.state.value}: it holds nothing", "job")
        if job.stopping is not None:
            return Refusal("conflict", f"job {job.label} is being stopped already", "job")
        if given.hold:
            self._record(events.JobHeld(job.id, now, given.by))
        self._stop(job, Reason.PREEMPTED, given.by, now, now + self.schedulers.of(job).preemption.grace(job))
        return Accepted((job.id,))

    def _unclaim(self, job: Job, why: str, now: float, lost: str = "") -> None:
        """Keep nothing for the job there any more; who was moved to a node that is lost may go back."""
        if job.move is not None:
            back = lost != "" and all(each.node != lost for each in job.move.origin)
            for event in moving.undone(self.state, self.schedulers.of(job).placer, job, why, now, back=back):
                self._record(event)
        elif job.claim:
            self._record(events.PreemptionDropped(job.id, now, why))

    def _edit(self, given: inputs.Edit, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        if job is None:
            return _no_such_job(given.job)
        if job.state.terminal:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        asked = edited(job, given.changes)
        if isinstance(asked, Refusal):
            return asked
        spec = admit(self.pipeline.rules, asked, job.user)
        if not isinstance(spec, Refusal) and profiles.moves(job.spec, spec):
            spec = profiles.refuse(self.state.profiles, spec, job.user) or spec
        if isinstance(spec, Refusal):
            return spec
        from_queue = labels_of_queue(job, given.changes, asked, spec)
        spec = losses.with_lease(self.pipeline.losses, spec)
        admitted = self.keeper.readmit(job, spec, given.known, now)
        if isinstance(admitted, Refusal):
            return admitted
        spec, ask = admitted.spec, self.state.ask(admitted.spec)
        fields = changed(job.spec, spec)
        if not fields:
            return Accepted((job.id,))
        moves = int((spec.project, spec.queue) != (job.spec.project, job.spec.queue))
        other = spec.profile != job.spec.profile
        if moves or other or ask != job.ask or spec.time_limit_s != job.spec.time_limit_s:
            placer = self._placer_for(spec, job.user)
            refusal = self._never(placer, spec, ask, from_queue) or over_quota(
                self.state.quotas, placer, spec, ask, job.user, moves, now, job.spec
            )
            if refusal is not None:
                return refusal
        if job.state is JobState.QUEUED:
            self._unclaim(job, f"a change by {given.by}", now)
            self.schedulers.forget(job.id)
        gates, met, lost = admitted.gates, admitted.met, admitted.lost
        self._record(events.JobEdited(job.id, now, spec, given.by, fields, gates, met, lost, from_queue))
        return Accepted((job.id,))

    def _hold(self, given: inputs.Hold, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        if job is None:
            return _no_such_job(given.job)
        if job.state is not JobState.QUEUED:
            return Refusal("conflict", f"job {job.label} is {job.state.value}; only queued jobs wait", "job")
        if not job.held:
            self._unclaim(job, f"held by {given.by}", now)
            self._record(events.JobHeld(job.id, now, given.by))
        return Accepted((job.id,))

    def _release(self, given: inputs.Release, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        if job is None:
            return _no_such_job(given.job)
        if not job.held or job.state is not JobState.QUEUED:
            return Refusal("conflict", f"job {job.label} is not held", "job")
        self._record(events.JobReleased(job.id, now, given.by))
        return Accepted((job.id,))

    # --- what operators ask ---

    def _add_node(self, given: inputs.AddNode, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        taints = node.marks.configured if node is not None else ()
        if node is None or (node.labels, node.host, taints) != (given.labels, given.host, given.taints):
            self._record(
                events.NodeAdded(given.node, now, dict(given.labels), given.host, given.by, given.taints)
            )
            for claimant in sorted(self.state.nodes.by_name[given.node].claims):
                self._unclaim(
                    self.state.jobs[claimant], f"node {given.node} is configured otherwise", now, given.node
                )
            self._evict(given.node, now)
        return Accepted()

    def _pin_key(self, given: inputs.PinKey, now: float) -> Reply:
        if self.state.host_keys.get(given.node) != given.key:
            self._record(events.HostKeyPinned(now, given.node, given.key, given.by))
        return Accepted()

    def _remove_node(self, given: inputs.RemoveNode, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        if node is None:
            return _no_such_node(given.node)
        # A gang is there until its last member has ended, wherever that is.
        held = [self.state.jobs[job] for _, job in self.state.releases]
        labels = [job.label for job in held if given.node in job.members]
        if labels:
            return Refusal(
                "conflict",
                f"node {given.node} still has {counted(len(labels), 'job')}: {', '.join(labels[:10])}",
                "node",
                f"'corral nodes drain {given.node}' lets them end, or cancel them.",
            )
        for claimant in sorted(node.claims):
            self._unclaim(self.state.jobs[claimant], f"node {given.node} is removed", now, given.node)
        self._record(events.NodeRemoved(given.node, now, given.by))
        return Accepted()

    def _mark_node(self, given: inputs.MarkNode, now: float) -> Reply:
        if self.state.nodes.get(given.node) is None:
            return _no_such_node(given.node)
        wrong = mark_problem(given.labels, given.taints)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0])
        taint = unheeded_taint(self.pipeline.filters, given.taints)
        if taint is not None:
            return Refusal("invalid", nobody_heeds("taints"), f"taints.{taint}", HEED_HINT)
        self._record(events.NodeMarked(given.node, now, given.by, dict(given.labels), dict(given.taints)))
        for claimant in sorted(self.state.nodes.by_name[given.node].claims):
            self._unclaim(self.state.jobs[claimant], f"node {given.node} was marked", now, given.node)
        self._evict(given.node, now)
        return Accepted()

    def _evict(self, node: str, now: float) -> None:
        """Whoever does not bear the node's NoExecute taints has to go, and is queued again."""
        for job, why in list(evicted(self.state, self.state.nodes.by_name[node])):
            self._stop(job, Reason.EVICTED, why, now)

    def _drain(self, given: inputs.Drain, now: float) -> Reply:
        if self.state.nodes.get(given.node) is None:
            return _no_such_node(given.node)
        self._record(events.NodeDrained(given.node, now, given.why, given.by))
        return Accepted()

    def _resume(self, given: inputs.Resume, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        if node is None:
            return _no_such_node(given.node)
        if not node.drained:
            return Refusal("conflict", f"node {given.node} is not drained", "node")
        self._record(events.NodeResumed(given.node, now, given.by))
        return Accepted()

    def _set_quota(self, given: inputs.SetQuota, now: float) -> Reply:
        refused = wrong_tenant(given.scope, given.name)
        if refused is not None:
            return refused
        wrong = problems_of_quota(given.scope, given.quota)
        if wrong:
            where, message = wrong[0]
            return Refusal("invalid", message, f"quota.{where}")
        key = given.scope, given.name
        quota = given.quota.over(self.state.quotas.edits.get(key, Quota()))
        if quota != self.state.quotas.edits.get(key):
            self._record(events.QuotaSet(now, given.scope, given.name, quota, given.by))
        return Accepted()

    def _unset_quota(self, given: inputs.UnsetQuota, now: float) -> Reply:
        if (given.scope, given.name) not in self.state.quotas.edits:
            message = f"no quota was set for {given.scope} {given.name!r}"
            return Refusal("not_found", message, "name", "'corral quota list' shows what there is.")
        self._record(events.QuotaUnset(now, given.scope, given.name, given.by))
        return Accepted()

    def _reserve(self, given: inputs.Reserve, now: float) -> Reply:
        return reserving.reserve(self.state, given, now, self._record)

    def _cancel_reservation(self, given: inputs.CancelReservation, now: float) -> Reply:
        return reserving.cancel(self.state, given, now, self._record)

    def _rebalance(self, given: inputs.Rebalance, now: float) -> Reply:
        return self.rebalancing.run(given, now)

    # --- what agents tell ---

    def _agent_said_hello(self, given: inputs.AgentSaidHello, now: float) -> Reply:
        if given.node in self.state.nodes.gone:
            return _no_such_node(given.node)
        hello, before = given.hello, self.state.nodes.get(given.node)
        rebooted = before is not None and before.boot_id != hello.boot_id
        if before is not None and before.facts != hello.facts:
            for claimant in sorted(before.claims):
                self._unclaim(
                    self.state.jobs[claimant], f"node {given.node} is not what it was", now, given.node
                )
        had = {} if before is None else {gpu.uuid: gpu for gpu in before.facts.gpus}
        self._record(
            events.NodeJoined(
                given.node, now, hello.facts, hello.boot_id, hello.version, self.pipeline.overcommit
            )
        )
        self.doctor.joined(self.state.nodes.by_name[given.node], had, rebooted, now)
        told = set()
        for status in hello.attempts:
            told.add((status.job, status.attempt))
            self._attempt_told(given.node, status, now)
        for job_id in list(self.state.nodes.by_name[given.node].held):
            job = self.state.jobs[job_id]
            known = (job.id, job.attempt) in told
            # What is to run again may have come to its end unheard of before the host went down.
            if job.members[given.node].leaving and known and job.stopping is None:
                self._send_leave(job, given.node)
            elif job.stopping and (known or not rebooted or job.stopping is not Reason.PREEMPTED):
                self._send_stop(job, given.node)
            elif not known:
                self._attempt_untold(given.node, job, now, rebooted)
        return Accepted()

    def _attempt_untold(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        """The agent does not know an attempt that we placed there."""
        # After a reboot nobody can tell any more whether it ran unheard of, or even succeeded.
        if job.members[node].started_at is None and not rebooted:
            self._order(SendToNode(node, starts_of(job, self._addresses(job))[node]))
        else:
            self._exited(job, AttemptStatus(job.id, job.attempt, why="node_lost"), node, now)

    def _addresses(self, job: Job) -> dict[str, str]:
        return {name: self.state.nodes.by_name[name].facts.address for name in job.members}

    def _agent_reported(self, given: inputs.AgentReported, now: float) -> Reply:
        self._attempt_told(given.node, given.status, now)
        return Accepted()

    def _attempt_told(self, node: str, status: AttemptStatus, now: float) -> None:
        job = self.state.jobs.get(status.job)
        member = job.members.get(node) if job is not None and job.attempt == status.attempt else None
        if job is None or member is None or member.ended_at is not None:
            frame = (
                Settle(status.job, status.attempt)
                if status.ended_at is not None
                else Stop(status.job, status.attempt, why="superseded")
            )
            self._order(SendToNode(node, frame))
            return
        if status.ready:
            ready = gangs.news(job, node, status, now)
            if ready is not None:
                self._record(ready)
            for release in gangs.releases(job, status):
                self._order(release)
        if member.started_at is None and status.started_at is not None:
            self._record(events.AttemptStarted(job.id, now, job.attempt, node, status.pid))
        news = saved(job, node, status, now)
        if news is not None:
            self._record(news)
        if status.ended_at is not None:
            self._order(SendToNode(node, Settle(status.job, status.attempt)))
            self._exited(job, status, node, now)

    def _exited(self, job: Job, status: AttemptStatus, node: str, now: float) -> None:
        usage = status.usage
        self._record(
            events.AttemptExited(
                job.id,
                now,
                job.attempt,
                node,
                status.code,
                status.signal,
                status.why,
                usage.cpu_s if usage else 0.0,
                usage.max_rss_mib if usage else 0,
                status.checkpoint,
                usage.gpu if usage else None,
            )
        )
        self._gone(job, [node], now)

    def _members_reported(self, given: inputs.MembersReported, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        members = job.members if job is not None and job.attempt == given.attempt else {}
        begun: dict[str, int | None] = {}
        over: dict[str, AttemptStatus] = {}
        seen, plain = None, False
        for node, status in given.told.items():
            if status is not seen:
                seen, plain = status, gangs.plain(status)
            member = members.get(node)
            if member is None or member.ended_at is not None or not plain:
                self._attempt_told(node, status, now)
                continue
            if member.started_at is None and status.started_at is not None:
                begun[node] = status.pid
            if status.ended_at is not None:
                over[node] = status
        if begun:
            self._record(events.MembersStarted(given.job, now, given.attempt, begun))
        if over and job is not None:
            self._order(SendToNodes(tuple(over), Settle(given.job, given.attempt)))
            self._record(events.MembersExited(given.job, now, given.attempt, gangs.exits_of(over)))
            self._gone(job, over, now)
        return Accepted()

    def _gone(self, job: Job, nodes: Iterable[str], now: float) -> None:
        """Members have ended: what becomes of their GPUs, and of the other members."""
        for node in nodes:
            allocation = job.members[node].allocation
            if allocation.gpus:
                self.doctor.freed(self.state.nodes.by_name[node], allocation, now)
        if not job.unended:
            self._over(job, now)
            return
        failed = [node for node in nodes if job.members[node].failed]
        if failed and job.stopping is None:
            if goes_on(job):
                for release in gangs.all_go(job):
                    self._order(release)
            else:
                self._stop(job, Reason.MEMBER_FAILED, failed[0], now)

    def _over(self, job: Job, now: float) -> None:
        """All its processes have returned: the outcome, or the queue again."""
        if was_preempted(job):
            self._record(events.JobPreempted(job.id, now, job.attempt, job.stopped_by, job.unsaved(now)))
            told = f"preempted by {job.stopped_by}"
            self._record(events.JobRequeued(job.id, now, job.attempt, Reason.PREEMPTED, told))
        else:
            outcome = outcome_of(job, now)
            again = requeued(job, outcome) or elsewhere(job, outcome)
            again = again or losses.anew(job, outcome) or moving.requeued(job, outcome)
            idled = reclaimed(job, outcome, self.pipeline.idling)
            self._record(again or idled or restarted(job, outcome) or outcome)
        if job.move is not None and job.attempt > job.move.attempt:
            why = job.detail or job.reason.value.replace("_", " ")
            for event in moving.undone(
                self.state, self.schedulers.of(job).placer, job, why, now, back=not job.held
            ):
                self._record(event)

    def _gpu_reported(self, given: inputs.GpuReported, now: float) -> Reply:
        return self.doctor.reported(given, now)

    def _gpu_troubled(self, given: inputs.GpuTroubled, now: float) -> Reply:
        return self.doctor.troubled(given, now)

    def _gpu_looked(self, given: inputs.GpuLooked, now: float) -> Reply:
        return self.doctor.looked(given, now)

    def _gpu_was_reset(self, given: inputs.GpuWasReset, now: float) -> Reply:
        return self.doctor.was_reset(given, now)

    def _stranger_seen(self, given: inputs.StrangerSeen, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        known = (given.node, given.uuid, given.user) in self.state.offqueue.open
        if node is not None and node.up and not known:
            models = self.state.nodes.models(given.node)
            rate = rate_of(self.state.shares.sharing, models.get(given.uuid, ""))
            self._record(
                events.StrangerCame(now, given.node, given.uuid, given.user, given.pid, given.command, rate)
            )
        return Accepted()

    def _stranger_gone(self, given: inputs.StrangerGone, now: float) -> Reply:
        stint = self.state.offqueue.open.get((given.node, given.uuid, given.user))
        if stint is not None:
            self._record(events.StrangerLeft(now, given.node, given.uuid, given.user, stint.since))
        return Accepted()

    def _cordon_gpu(self, given: inputs.CordonGpu, now: float) -> Reply:
        return self.doctor.cordon(given, now)

    def _resume_gpu(self, given: inputs.ResumeGpu, now: float) -> Reply:
        return self.doctor.resume(given, now)

    def _gpus_idle(self, given: inputs.GpusIdle, now: float) -> Reply:
        self.overseer.idle(given, now)
        return Accepted()

    def _gpus_busy(self, given: inputs.GpusBusy, now: float) -> Reply:
        self.overseer.busy(given, now)
        return Accepted()

    def _data_found(self, given: inputs.DataFound, now: float) -> Reply:
        self.keeper.found(given.path, now)
        return Accepted()

    def _link_went_down(self, given: inputs.LinkWentDown, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        # One that never came says why, too, and says it again when the reason is another.
        if node is not None and (node.up or (not node.drained and node.why != given.why)):
            self._record(events.NodeWentAway(given.node, now, given.why))
        return Accepted()

    def _note_start(self, given: inputs.NoteStart, now: float) -> Reply:
        job = self.state.jobs.get(given.job)
        waits = job is not None and job.state is JobState.QUEUED
        if waits and job is not None and worth_keeping(job.foreseen, given.kind, now):
            self._record(events.StartEstimated(job.id, now, given.kind, given.start))
        return Accepted()

    def _node_silent(self, given: inputs.NodeSilent, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        if node is None or node.up:
            return Accepted()
        if not node.down and given.for_s >= self.pipeline.losses.down_after_s:
            self._record(events.NodeWentDown(given.node, now))
        for job in list(losses.lost_jobs(self.state, node, self.pipeline.losses, given.for_s)):
            self._lose(job, given.node, f"{given.node} is silent, and the lease is over", now)
        return Accepted()

    def _declare_lost(self, given: inputs.DeclareLost, now: float) -> Reply:
        node = self.state.nodes.get(given.node)
        if node is None:
            return _no_such_node(given.node)
        if node.up:
            message = f"node {given.node} is {node.state.value}"
            return Refusal("conflict", message, "node", "Drain it, and cancel or requeue its jobs.")
        self._record(events.NodeDeclaredLost(given.node, now, given.by))
        for number in sorted(node.held):
            self._lose(self.state.jobs[number], given.node, f"{given.by} declared {given.node} lost", now)
        return Accepted()

    def _lose(self, job: Job, node: str, why: str, now: float) -> None:
        """What the job had on this node is over, and nobody will ever say how."""
        self._exited(job, AttemptStatus(job.id, job.attempt, why=f"node_lost: {why}"), node, now)

    def _controller_started(self, given: inputs.ControllerStarted, now: float) -> Reply:
        for name in given.nodes:
            self._record(events.NodeWentAway(name, now, JUST_STARTED))
        return Accepted()

    def _set_share(self, given: inputs.SetShare, now: float) -> Reply:
        wrong = share_problem(given.share, given.weight, given.soft, given.hard)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0], "'corral shares' shows what there is.")
        self._record(events.ShareSet(now, given.share, given.weight, given.by, given.soft, given.hard))
        return Accepted()

    # --- time ---

    def look(self, job: Job, now: float) -> tuple[PreemptionPlanned | None, bool]:
        """Who would have to end for a waiting job to start now, and whether they will be in its turn."""
        if self.state.licences.short(job.ask.licences):
            return None, False
        cycle = self.schedulers.of(job)
        elsewhere, plan = cycle.promised_elsewhere(job, now), None
        if cycle.placer.pipeline.strategies:
            plan = cycle.preemption.plan(job, now, elsewhere)
        if plan is not None:
            return plan, True
        anybody = Preemption(self.state, cycle.placer, (NotAbove(),), UNGUARDED)
        return anybody.plan(job, now, elsewhere), False

    @property
    def next_at(self) -> float:
        """When the next cycle is needed although nothing happens."""
        return min(self.keeper.next_at, self.state.reservations.next_at, self.schedulers.again_at)

    def _make_room(self, job: Job, plan: events.PreemptionPlanned, now: float) -> None:
        by = f"job {job.label}"
        for victim in plan.victims:
            other = self.state.jobs[victim.job]
            if victim.nodes:
                self._record(
                    events.JobShrunk(other.id, now, other.attempt, victim.nodes, by, victim.gpu_hours)
                )
                for node in victim.nodes:
                    self._send_leave(other, node)
            else:
                self._stop(other, Reason.PREEMPTED, by, now, plan.by)

    def _send_leave(self, job: Job, node: str) -> None:
        """What an elastic job runs on the node ends; the rest goes on."""
        grace = max(job.spec.grace_s, self.schedulers.guards_of(job).grace_s)
        saving = job.spec.checkpoint_s if job.spec.saves else 0.0
        self._order(SendToNode(node, Stop(job.id, job.attempt, grace, SHRUNK, saving)))

    def _grew(self, job: Job, grown: events.JobGrew) -> None:
        starts = starts_of(job, self._addresses(job))
        for allocation in grown.allocations:
            self._order(SendToNode(allocation.node, starts[allocation.node]))

    def _tick(self, _given: inputs.Tick, now: float) -> Reply:
        self.pipeline.watch.turn += 1
        reserving.turn_due(self.state, now, self._record)
        self.keeper.open_due(now)
        self.keeper.settle(now)
        self._start_what_fits(now)
        if self.keeper.end_due(now):  # who waited for one of these to end may start at once
            self.keeper.settle(now)
            self._start_what_fits(now)
        return Accepted()

    def _start_what_fits(self, now: float) -> None:
        for step in self.schedulers.run(now):
            self._record(step)
            job = self.state.jobs[step.job]
            if isinstance(step, events.JobPlaced):
                self._order(StartAttempt(Launch(job, self._addresses)))
            elif isinstance(step, events.JobGrew):
                self._grew(job, step)
            elif isinstance(step, events.PreemptionPlanned):
                self._make_room(job, step, now)


def _no_such_job(job: int) -> Refusal:
    return Refusal("not_found", f"there is no job {job}", "job", "'corral queue --all' shows what there is.")


def _no_such_node(node: str) -> Refusal:
    return Refusal("not_found", f"there is no node {node!r}", "node", "'corral nodes' shows what there is.")


_HANDLERS: dict[type[Any], Callable[[Engine, Any, float], Reply]] = {
    inputs.Submit: Engine._submit,
    inputs.Cancel: Engine._cancel,
    inputs.Edit: Engine._edit,
    inputs.Hold: Engine._hold,
    inputs.Release: Engine._release,
    inputs.Preempt: Engine._preempt,
    inputs.AddNode: Engine._add_node,
    inputs.PinKey: Engine._pin_key,
    inputs.RemoveNode: Engine._remove_node,
    inputs.MarkNode: Engine._mark_node,
    inputs.Drain: Engine._drain,
    inputs.Resume: Engine._resume,
    inputs.SetQuota: Engine._set_quota,
    inputs.UnsetQuota: Engine._unset_quota,
    inputs.Reserve: Engine._reserve,
    inputs.CancelReservation: Engine._cancel_reservation,
    inputs.Rebalance: Engine._rebalance,
    inputs.AgentSaidHello: Engine._agent_said_hello,
    inputs.AgentReported: Engine._agent_reported,
    inputs.MembersReported: Engine._members_reported,
    inputs.GpuReported: Engine._gpu_reported,
    inputs.DataFound: Engine._data_found,
    inputs.GpusIdle: Engine._gpus_idle,
    inputs.GpusBusy: Engine._gpus_busy,
    inputs.GpuTroubled: Engine._gpu_troubled,
    inputs.GpuLooked: Engine._gpu_looked,
    inputs.GpuWasReset: Engine._gpu_was_reset,
    inputs.StrangerSeen: Engine._stranger_seen,
    inputs.StrangerGone: Engine._stranger_gone,
    inputs.CordonGpu: Engine._cordon_gpu,
    inputs.ResumeGpu: Engine._resume_gpu,
    inputs.LinkWentDown: Engine._link_went_down,
    inputs.NoteStart: Engine._note_start,
    inputs.NodeSilent: Engine._node_silent,
    inputs.DeclareLost: Engine._declare_lost,
    inputs.ControllerStarted: Engine._controller_started,
    inputs.SetShare: Engine._set_share,
    inputs.Tick: Engine._tick,
}
