"""Handles the reports of agents, and the loss of their connections. Records which attempts have started, have
ended or were lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.core.cluster.node import JUST_STARTED
from controller.core.fairshare.offqueue_usage import offqueue_rate
from controller.core.input_handlers.context import Context
from controller.core.lifecycle import attempt_reports, gang_barrier, move_rollback, node_loss
from controller.core.lifecycle.gang_barrier import start_facts
from controller.core.lifecycle.limit_warnings import advice_after_limit
from controller.core.lifecycle.replica_room import keep_for_restart
from controller.core.lifecycle.requeue_policy import after_attempt, was_healthy
from controller.core.model.decision.decision import Refusal, Reply, no_such_node
from controller.core.model.decision.effects import SendToNode, SendToNodes
from controller.core.model.decision.start_orders import start_frames
from controller.core.model.events.attempts import (
    BATCH_ENDED,
    AttemptExited,
    AttemptStarted,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobShrunk,
    MembersExited,
    MembersStarted,
)
from controller.core.model.events.nodes import NodeDeclaredLost, NodeJoined, NodeWentAway, NodeWentDown
from controller.core.model.events.tenants import OffQueueProcessEnded, OffQueueProcessStarted
from controller.core.model.exit_outcome import NODE_UNFIT, continues_without_failed, outcome_of, was_preempted
from controller.core.model.inputs import agent_inputs, controller_inputs, node_inputs
from controller.core.model.job import Job
from wire.agent.orders import Settle, Stop, TimeLimit
from wire.agent.reports import AttemptStatus
from wire.names import Reason

RUNS_AGAIN = (Reason.PREEMPTED, Reason.EVICTED, Reason.IDLE, Reason.REQUEUED)
"""Reasons for which a running job is stopped to be queued again (with the reason IDLE, depending on the
settings).
"""


class AgentReports:
    """Handles what agents send to the controller: the hello of a new connection, and reports about attempts.
    Also handles the loss of the connection.

    From a report to the end of a job
    1. `_handle_status` compares the reported status of an attempt with the state. It records the changes
       (ready at the gang barrier, started, checkpoint saved, ended). The agent repeats the report of an end
       until it receives the message Settle, which is sent after the end is stored. So a repeated report must
       change nothing.
    2. When a member of a gang (its part on one node) has ended, `_record_exit` records the end.
       `_after_member_exits` then orders resets of the member's GPUs if needed. Depending on the job's
       settings, the other members of the gang continue, are stopped, or leave their nodes.
    3. When the last member of the gang has ended, `_finish_attempt` records the end of the job, or queues it
       again.

    Invariant: the state records the end of an attempt only in three cases: an agent has reported the end, the
    hello of an agent no longer contains the attempt (for example after a reboot), or the node was lost. A
    node is lost if it is silent for longer than the lease, or if an operator has declared it lost. So no job
    runs twice and no GPU is allocated twice.

    Cost: O(1) for a report of one gang member; O(members of the gang) for the report of the last one.

    Example: job 7 runs on gpu01 and gpu02. The agent of gpu01 reports exit code 1. With on_failure = "fail",
    the agent of gpu02 gets the message Stop (why = "member_failed"). When the agent has reported the end of
    its member, job 7 is FAILED with the exit code 1 of gpu01.
    """

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._record = context.record
        self._order = context.order
        self._stopper = context.stopper
        self._context = context

    def on_agent_hello(self, given: agent_inputs.AgentSaidHello, now: float) -> Reply | None:
        """Handle the hello (first message) of an agent that has connected: update the state of the node and
        of the attempts on it.

        1. If the node's hardware has changed, withdraw all nominations (resources of the node that are kept
           for waiting jobs).
        2. Record the node's hardware, and its GPUs that are new or missing.
        3. Handle the status of each attempt that the agent reports.
        4. Go through the attempts that the state records for this node. Repeat orders to stop or to leave the
           node, and raised time limits, because they may have been lost. If the agent does not report an
           attempt that is not being stopped, start the attempt again or record it as lost.
        """
        if given.node in self._state.nodes.removed:
            return no_such_node(given.node)
        hello, before = given.hello, self._state.nodes.get(given.node)
        rebooted = before is not None and before.boot_id != hello.boot_id
        if before is not None and before.facts != hello.facts:
            for nominee in sorted(before.claims):
                why = f"the hardware of node {given.node} changed"
                self._stopper.unclaim(self._state.jobs[nominee], why, now, given.node)
        gpus_before = {} if before is None else {gpu.uuid: gpu for gpu in before.facts.gpus}
        overcommit = self._context.pipeline.overcommit
        self._record(NodeJoined(given.node, now, hello.facts, hello.boot_id, hello.version, overcommit))
        node = self._state.nodes.by_name[given.node]
        self._context.gpu_health.on_agent_hello(node, gpus_before, rebooted, now)
        reported = set()
        for status in hello.attempts:
            reported.add((status.job, status.attempt))
            self._handle_status(given.node, status, now, in_hello=True)
        for job_id in list(node.held):
            job = self._state.jobs[job_id]
            known = (job.id, job.attempt) in reported
            if job.members[given.node].leaving and (known or not rebooted) and job.stopping is None:
                self._stopper.send_leave(job, given.node)
            # Repeat the stop order, with one exception. If the job was to be queued again after the stop, and
            # its node was rebooted and does not report the attempt, the attempt is recorded as lost below.
            elif job.stopping and (known or not rebooted or job.stopping not in RUNS_AGAIN):
                self._stopper.send_stop(job, given.node)
            elif not known:
                self._handle_missing_attempt(given.node, job, now, rebooted)
            elif job.limit_raised:
                self._order(SendToNode(given.node, TimeLimit(job.id, job.attempt, job.limit)))
        return None

    def _handle_missing_attempt(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        """Handle an attempt on the node that the state records as running, but that the node's agent does not
        report. If the attempt has not started and the node was not rebooted, start it again. If the attempt
        is older than a loss of journal entries (`corral admin accept-loss`), the database may lack its end:
        ask the agent for the end. In all other cases, record the attempt as lost.
        """
        # Do not start the attempt again after a reboot, because the attempt may have run before the reboot,
        # or even ended with success.
        if job.members[node].started_at is None and not rebooted:
            self._order(SendToNode(node, start_frames(job, *start_facts(self._state, job))[node]))
        elif self._state.skipped.is_older(job.id, job.attempt):
            # The agent answers this order with the recorded end of the attempt. If the agent has no record of
            # the attempt, it answers with the reason `node_lost`.
            self._order(SendToNode(node, Stop(job.id, job.attempt, why="node_lost")))
        else:
            self._record_exit(job, AttemptStatus(job.id, job.attempt, why="node_lost"), node, now)

    def on_attempt_report(self, given: agent_inputs.AgentReported, now: float) -> None:
        self._handle_status(given.node, given.status, now)

    def _handle_status(self, node: str, status: AttemptStatus, now: float, *, in_hello: bool = False) -> None:
        job = self._state.jobs.get(status.job)
        member = job.members.get(node) if job is not None and job.attempt == status.attempt else None
        if job is None or member is None or member.ended_at is not None:
            # The controller no longer expects this attempt on the node. If the attempt has ended, send
            # Settle, so that the agent stops reporting the attempt. Otherwise send Stop, so that the agent
            # ends its processes.
            frame = (
                Settle(status.job, status.attempt)
                if status.ended_at is not None
                else Stop(status.job, status.attempt, why="superseded")
            )
            self._order(SendToNode(node, frame))
            return
        if status.ready:
            ready = gang_barrier.member_ready(job, node, status, now)
            if ready is not None:
                self._record(ready)
            for go in gang_barrier.go_orders_after(job, status):
                self._order(go)
        if member.started_at is None and status.ran:
            self._record(AttemptStarted(job.id, now, job.attempt, node, status.pid))
        saved = attempt_reports.checkpoint_saved(job, node, status, now)
        if saved is not None:
            self._record(saved)
        if status.ended_at is not None:
            self._order(SendToNode(node, Settle(status.job, status.attempt)))
            steps = attempt_reports.steps_recorded(job, node, status, now)
            if steps is not None:
                self._record(steps)
            self._record_exit(job, status, node, now, in_hello=in_hello)

    def _record_exit(
        self, job: Job, status: AttemptStatus, node: str, now: float, *, in_hello: bool = False
    ) -> None:
        how = attempt_reports.exit_fields(status)
        self._record(AttemptExited(job.id, now, job.attempt, node, *how))
        self._after_member_exits(job, [node], now, in_hello=in_hello)

    def on_members_report(self, given: agent_inputs.MembersReported, now: float) -> None:
        """Handle reports about several members of a gang. Record one event for all members that started, and
        one event for all members that ended.

        A report that also has other changes, such as a checkpoint, is handled separately.
        """
        job = self._state.jobs.get(given.job)
        members = job.members if job is not None and job.attempt == given.attempt else {}
        started: dict[str, int | None] = {}
        ended: dict[str, AttemptStatus] = {}
        last, simple = None, False
        for node, status in given.statuses.items():
            if status is not last:
                # Check each AttemptStatus object once, because gang members with equal reports often share
                # one object.
                last, simple = status, attempt_reports.only_starts_or_ends(status)
            member = members.get(node)
            if member is None or member.ended_at is not None or not simple:
                self._handle_status(node, status, now)
                continue
            if member.started_at is None and status.ran:
                started[node] = status.pid
            if status.ended_at is not None:
                ended[node] = status
        if started:
            self._record(MembersStarted(given.job, now, given.attempt, started))
        if ended and job is not None:
            self._order(SendToNodes(tuple(ended), Settle(given.job, given.attempt)))
            self._record(MembersExited(given.job, now, given.attempt, attempt_reports.exits_of(ended)))
            self._after_member_exits(job, ended, now)

    def _after_member_exits(
        self, job: Job, nodes: Iterable[str], now: float, *, in_hello: bool = False
    ) -> None:
        """Handle the end of the members of a gang on these nodes. `in_hello` is True if the agent reported
        the end in its hello.

        1. Order the GPU resets that had to wait for the end of the job.
        2. Record a node as disconnected if its agent reported that the host cannot run jobs (NODE_UNFIT).
        3. If the last member of the gang has ended, finish the attempt. If other members still run and the
           command of a batch job has ended, release the nodes of the other members. If other members still
           run and a member has failed, stop the others, unless the job's settings let the gang continue.
        """
        for name in nodes:
            node, member = self._state.nodes.by_name[name], job.members[name]
            if member.allocation.gpus:
                self._context.gpu_health.on_gpus_freed(node, member.allocation, now)
            word, _, why = member.why.partition(": ")
            # An agent that reports NODE_UNFIT exits, so record the node as disconnected. If the report came
            # in a hello, a new agent is already connected and has checked the host, so the node stays up.
            if word == NODE_UNFIT and node.up and not in_hello:
                self._record(NodeWentAway(name, now, f"it cannot run jobs: {why}"))
        if not job.unended:
            self._finish_attempt(job, now)
            return
        if job.spec.batch and self._release_batch_nodes(job, now):
            return
        failed = [name for name in nodes if job.members[name].failed]
        if failed and job.stopping is None:
            if continues_without_failed(job):
                for go in gang_barrier.go_orders(job):
                    self._order(go)
            else:
                self._stopper.stop(job, Reason.MEMBER_FAILED, failed[0], now)

    def _release_batch_nodes(self, job: Job, now: float) -> bool:
        """If the command of a batch job (on its first node) has ended, release the other nodes of the job.

        Return True if the command has ended and the job is not being stopped.
        """
        first = next(iter(job.members.values()))
        if first.ended_at is None or job.stopping is not None:
            return False
        others = tuple(member.allocation.node for member in job.staying)
        if others:
            self._record(JobShrunk(job.id, now, job.attempt, others, BATCH_ENDED, 0.0))
            for node in others:
                self._stopper.send_leave(job, node)
        return True

    def _finish_attempt(self, job: Job, now: float) -> None:
        """Record the outcome of an attempt whose members have all ended: the job ends, or is queued again."""
        if was_preempted(job):
            self._record(JobPreempted(job.id, now, job.attempt, job.stopped_by, job.unsaved(now)))
            detail = f"preempted by {job.stopped_by}"
            healthy = was_healthy(job, now)
            self._record(JobRequeued(job.id, now, job.attempt, Reason.PREEMPTED, detail, healthy=healthy))
        else:
            allocations = tuple(member.allocation for member in job.members.values())
            quality, ended = job.quality or 0, outcome_of(job, now)
            result = after_attempt(job, ended, self._context.pipeline.idling)
            if isinstance(result, JobEnded) and result.reason is Reason.TIME_LIMIT:
                usual = self._state.estimates.usual_run_s(job, self._context.pipeline.estimating)
                detail = f"{result.detail}: {advice_after_limit(job, usual)}"
                result = replace(result, detail=detail)
            self._record(result)
            if isinstance(result, JobRequeued):
                for kept in keep_for_restart(self._state, job, result, allocations, quality):
                    self._record(kept)
        if job.move is not None and job.attempt > job.move.attempt:
            why = job.detail or job.reason.value.replace("_", " ")
            placer = self._context.cycles.placer_of(job)
            for event in move_rollback.undo_move(self._state, placer, job, why, now, back=not job.held):
                self._record(event)

    def on_off_queue_process_seen(self, given: agent_inputs.OffQueueProcessSeen, now: float) -> None:
        """Record an agent's report of a user's process on a GPU outside of any job."""
        node = self._state.nodes.get(given.node)
        known = (given.node, given.uuid, given.user) in self._state.offqueue.open
        if node is not None and node.up and not known:
            models = self._state.nodes.gpu_models(given.node)
            rate = offqueue_rate(self._state.shares.sharing, models.get(given.uuid, ""))
            self._record(
                OffQueueProcessStarted(
                    now, given.node, given.uuid, given.user, given.pid, given.command, rate
                )
            )

    def on_off_queue_process_gone(self, given: agent_inputs.OffQueueProcessGone, now: float) -> None:
        """Record that a user's last process outside of jobs has ended on a GPU."""
        use = self._state.offqueue.open.get((given.node, given.uuid, given.user))
        if use is not None:
            self._record(OffQueueProcessEnded(now, given.node, given.uuid, given.user, use.since))
            self._context.gpu_health.on_offqueue_end(given.node, given.uuid, now)

    def on_link_down(self, given: agent_inputs.LinkWentDown, now: float) -> None:
        """Record that an agent has disconnected. Jobs on the node continue; no new job is placed on the
        node.
        """
        node = self._state.nodes.get(given.node)
        # Record a disconnected node again if the reason has changed, because operators need the present
        # reason to repair the connection. The field `why` of a drained node is the reason of the drain.
        if node is not None and (node.up or (not node.drained and node.why != given.why)):
            self._record(NodeWentAway(given.node, now, given.why))
            self._context.idle_gpus.on_node_away(node, now)

    def on_node_silent(self, given: agent_inputs.NodeSilent, now: float) -> None:
        """Handle a node that has sent no message for `given.for_s` seconds. `lifecycle/node_loss.py` decides
        whether to record the node as DOWN, and which of its jobs to record as lost.
        """
        node, losses = self._state.nodes.get(given.node), self._context.pipeline.losses
        if node is None:
            return
        if node_loss.goes_down(node, losses, given.for_s):
            self._record(NodeWentDown(given.node, now))
        for job in list(node_loss.lost_jobs(self._state, node, losses, given.for_s)):
            self._lose_member(job, given.node, f"{given.node} is silent, and the lease is over", now)

    def on_declare_lost(self, given: node_inputs.DeclareLost, now: float) -> Reply | None:
        """Record all jobs on a node as lost, because an operator has declared that no process runs on the
        node any more. Refuse this while the node is connected.
        """
        node = self._state.nodes.by_name[given.node]
        if node.up:
            message = f"node {given.node} is {node.state.value}"
            return Refusal("conflict", message, "node", "Drain it, and cancel or requeue its jobs.")
        self._record(NodeDeclaredLost(given.node, now, given.by))
        for number in sorted(node.held):
            why = f"{given.by} declared {given.node} lost"
            self._lose_member(self._state.jobs[number], given.node, why, now)
        return None

    def _lose_member(self, job: Job, node: str, why: str, now: float) -> None:
        """Record that the job's processes on this node have ended with an unknown exit code."""
        self._record_exit(job, AttemptStatus(job.id, job.attempt, why=f"node_lost: {why}"), node, now)

    def on_controller_started(self, given: controller_inputs.ControllerStarted, now: float) -> None:
        """Record all nodes as disconnected, because no agent is connected when the controller starts."""
        for name in given.nodes:
            self._record(NodeWentAway(name, now, JUST_STARTED))
