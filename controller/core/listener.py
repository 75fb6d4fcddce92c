"""What agents tell, and what their silence tells: attempts start, end and are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.core import events, gangs, inputs, losses, moving
from controller.core.doctor import Doctor
from controller.core.effects import Effect, SendToNode, SendToNodes
from controller.core.ender import Ender
from controller.core.events import Event
from controller.core.eviction import requeued
from controller.core.handover import elsewhere
from controller.core.idling import Overseer, reclaimed
from controller.core.inputs import DONE, Refusal, Reply, no_such_node
from controller.core.jobs import Job
from controller.core.keeper import Keeper
from controller.core.launch import addresses, starts_of
from controller.core.nodes import JUST_STARTED
from controller.core.offqueue import rate_of
from controller.core.outcome import UNFIT, goes_on, outcome_of, was_preempted
from controller.core.plugin import Pipeline
from controller.core.restarts import restarted
from controller.core.saving import saved
from controller.core.schedulers import Schedulers
from controller.core.state import State
from wire.frames import AttemptStatus, Settle, Stop
from wire.words import Reason

RUNS_AGAIN = (Reason.PREEMPTED, Reason.EVICTED, Reason.IDLE)
"""Whoever is to end for that is queued again, as a rule."""


class Listener:
    """Learns what happened on the nodes, and decides what becomes of the jobs there."""

    def __init__(
        self,
        state: State,
        pipeline: Pipeline,
        schedulers: Schedulers,
        keeper: Keeper,
        doctor: Doctor,
        overseer: Overseer,
        ender: Ender,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
    ) -> None:
        self._state = state
        self._pipeline = pipeline
        self._schedulers = schedulers
        self._keeper = keeper
        self._doctor = doctor
        self._overseer = overseer
        self._ender = ender
        self._record = record
        self._order = order

    def said_hello(self, given: inputs.AgentSaidHello, now: float) -> Reply:
        """An agent is there, with all it knows: bring together what it and we take for true."""
        if given.node in self._state.nodes.gone:
            return no_such_node(given.node)
        hello, before = given.hello, self._state.nodes.get(given.node)
        rebooted = before is not None and before.boot_id != hello.boot_id
        if before is not None and before.facts != hello.facts:
            for claimant in sorted(before.claims):
                self._ender.unclaim(
                    self._state.jobs[claimant], f"node {given.node} is not what it was", now, given.node
                )
        had = {} if before is None else {gpu.uuid: gpu for gpu in before.facts.gpus}
        self._record(
            events.NodeJoined(
                given.node, now, hello.facts, hello.boot_id, hello.version, self._pipeline.overcommit
            )
        )
        self._doctor.joined(self._state.nodes.by_name[given.node], had, rebooted, now)
        told = set()
        for status in hello.attempts:
            told.add((status.job, status.attempt))
            self._attempt_told(given.node, status, now)
        for job_id in list(self._state.nodes.by_name[given.node].held):
            job = self._state.jobs[job_id]
            known = (job.id, job.attempt) in told
            if job.members[given.node].leaving and (known or not rebooted) and job.stopping is None:
                self._ender.send_leave(job, given.node)
            # What is to run again may have come to its end unheard of before the host went down.
            elif job.stopping and (known or not rebooted or job.stopping not in RUNS_AGAIN):
                self._ender.send_stop(job, given.node)
            elif not known:
                self._attempt_untold(given.node, job, now, rebooted)
        return DONE

    def _attempt_untold(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        """The agent does not know an attempt that we placed there."""
        # After a reboot nobody can tell any more whether it ran unheard of, or even succeeded.
        if job.members[node].started_at is None and not rebooted:
            self._order(SendToNode(node, starts_of(job, addresses(self._state, job))[node]))
        else:
            self._exited(job, AttemptStatus(job.id, job.attempt, why="node_lost"), node, now)

    def reported(self, given: inputs.AgentReported, now: float) -> Reply:
        """News of one attempt."""
        self._attempt_told(given.node, given.status, now)
        return DONE

    def _attempt_told(self, node: str, status: AttemptStatus, now: float) -> None:
        job = self._state.jobs.get(status.job)
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
        if member.started_at is None and status.ran:
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

    def members_reported(self, given: inputs.MembersReported, now: float) -> Reply:
        """News of a gang, heard at once."""
        job = self._state.jobs.get(given.job)
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
            if member.started_at is None and status.ran:
                begun[node] = status.pid
            if status.ended_at is not None:
                over[node] = status
        if begun:
            self._record(events.MembersStarted(given.job, now, given.attempt, begun))
        if over and job is not None:
            self._order(SendToNodes(tuple(over), Settle(given.job, given.attempt)))
            self._record(events.MembersExited(given.job, now, given.attempt, gangs.exits_of(over)))
            self._gone(job, over, now)
        return DONE

    def _gone(self, job: Job, nodes: Iterable[str], now: float) -> None:
        """Members have ended: what becomes of their GPUs, and of the other members."""
        for node in nodes:
            allocation = job.members[node].allocation
            if allocation.gpus:
                self._doctor.freed(self._state.nodes.by_name[node], allocation, now)
            word, _, why = job.members[node].why.partition(": ")
            if word == UNFIT and self._state.nodes.by_name[node].up:  # its agent leaves, and looks again
                self._record(events.NodeWentAway(node, now, f"it cannot run jobs: {why}"))
        if not job.unended:
            self._over(job, now)
            return
        failed = [node for node in nodes if job.members[node].failed]
        if failed and job.stopping is None:
            if goes_on(job):
                for release in gangs.all_go(job):
                    self._order(release)
            else:
                self._ender.stop(job, Reason.MEMBER_FAILED, failed[0], now)

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
            idled = reclaimed(job, outcome, self._pipeline.idling)
            self._record(again or idled or restarted(job, outcome) or outcome)
        if job.move is not None and job.attempt > job.move.attempt:
            why = job.detail or job.reason.value.replace("_", " ")
            for event in moving.undone(
                self._state, self._schedulers.of(job).placer, job, why, now, back=not job.held
            ):
                self._record(event)

    def stranger_seen(self, given: inputs.StrangerSeen, now: float) -> Reply:
        """Somebody came to a GPU by a way of his own."""
        node = self._state.nodes.get(given.node)
        known = (given.node, given.uuid, given.user) in self._state.offqueue.open
        if node is not None and node.up and not known:
            models = self._state.nodes.models(given.node)
            rate = rate_of(self._state.shares.sharing, models.get(given.uuid, ""))
            self._record(
                events.StrangerCame(now, given.node, given.uuid, given.user, given.pid, given.command, rate)
            )
        return DONE

    def stranger_gone(self, given: inputs.StrangerGone, now: float) -> Reply:
        """He is gone."""
        stint = self._state.offqueue.open.get((given.node, given.uuid, given.user))
        if stint is not None:
            self._record(events.StrangerLeft(now, given.node, given.uuid, given.user, stint.since))
        return DONE

    def data_found(self, given: inputs.DataFound, now: float) -> Reply:
        """A path that jobs wait for is there."""
        self._keeper.found(given.path, now)
        return DONE

    def gpus_idle(self, given: inputs.GpusIdle, now: float) -> Reply:
        """A job's GPUs have done nothing for too long."""
        self._overseer.idle(given, now)
        return DONE

    def gpus_busy(self, given: inputs.GpusBusy, now: float) -> Reply:
        """They work again."""
        self._overseer.busy(given, now)
        return DONE

    def link_went_down(self, given: inputs.LinkWentDown, now: float) -> Reply:
        """An agent cannot be heard; what runs there goes on."""
        node = self._state.nodes.get(given.node)
        # One that never came says why, too, and says it again when the reason is another.
        if node is not None and (node.up or (not node.drained and node.why != given.why)):
            self._record(events.NodeWentAway(given.node, now, given.why))
        return DONE

    def node_silent(self, given: inputs.NodeSilent, now: float) -> Reply:
        """It has not been heard for this long: whose leases are over is lost."""
        node = self._state.nodes.get(given.node)
        if node is None or node.up:
            return DONE
        if not node.down and given.for_s >= self._pipeline.losses.down_after_s:
            self._record(events.NodeWentDown(given.node, now))
        for job in list(losses.lost_jobs(self._state, node, self._pipeline.losses, given.for_s)):
            self._lose(job, given.node, f"{given.node} is silent, and the lease is over", now)
        return DONE

    def declare_lost(self, given: inputs.DeclareLost, now: float) -> Reply:
        """An operator says that a node will not come back."""
        node = self._state.nodes.get(given.node)
        if node is None:
            return no_such_node(given.node)
        if node.up:
            message = f"node {given.node} is {node.state.value}"
            return Refusal("conflict", message, "node", "Drain it, and cancel or requeue its jobs.")
        self._record(events.NodeDeclaredLost(given.node, now, given.by))
        for number in sorted(node.held):
            self._lose(self._state.jobs[number], given.node, f"{given.by} declared {given.node} lost", now)
        return DONE

    def _lose(self, job: Job, node: str, why: str, now: float) -> None:
        """What the job had on this node is over, and nobody will ever say how."""
        self._exited(job, AttemptStatus(job.id, job.attempt, why=f"node_lost: {why}"), node, now)

    def controller_started(self, given: inputs.ControllerStarted, now: float) -> Reply:
        """Nobody has been heard yet."""
        for name in given.nodes:
            self._record(events.NodeWentAway(name, now, JUST_STARTED))
        return DONE
