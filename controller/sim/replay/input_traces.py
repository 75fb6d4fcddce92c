"""Defines for each kind of input of the engine (command, report or timer) which event in the journal proves
the arrival of the input, and how a replay makes the input again.

An event proves the arrival of an input if only this kind of input causes the event. All other events are
consequences of an input with the same time. If there is no input with the same time, they are consequences of
a scheduling cycle. The table WAYS has a row for each kind of input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from controller.core.cluster.node import JUST_STARTED
from controller.core.input_handlers.job_commands import BY_CONTROLLER
from controller.core.lifecycle.replica_room import KEPT_ROOM
from controller.core.model.events.access import TokenCreated, TokenRevoked
from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    CheckpointSaved,
    EndWarned,
    GpuFaultNoted,
    HealthChanged,
    IdleEnded,
    IdleKept,
    IdleNoted,
    JobEnded,
    JobGrew,
    JobPlaced,
    JobPreempted,
    JobRequeued,
    JobShrunk,
    MemberReady,
    MembersExited,
    MembersStarted,
    PredictionOutlived,
    StepsRecorded,
    StopRequested,
)
from controller.core.model.events.controller import ConfigApplied, JournalSealed, PluginFailed
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import (
    DrainBegan,
    GpuHealthRecorded,
    HostKeyPinned,
    NodeAdded,
    NodeDeclaredLost,
    NodeDrained,
    NodeJoined,
    NodeMarked,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
    NodeWentDown,
)
from controller.core.model.events.nominations import (
    MovePlanned,
    MoveUndone,
    PreemptionDropped,
    PreemptionPlanned,
    RebalancePlanned,
)
from controller.core.model.events.queued import (
    DeadlineAtRisk,
    DependencyDecided,
    GateClosed,
    GateOpened,
    JobEdited,
    JobHeld,
    JobPromoted,
    JobQueued,
    JobRelaxed,
    JobReleased,
    PriorityInherited,
    StartEstimated,
    WaitAlarmed,
)
from controller.core.model.events.reservations import (
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.model.events.services import ServiceRestarted, ServiceScaled
from controller.core.model.events.tenants import (
    BudgetReached,
    HoursChanged,
    OffQueueProcessEnded,
    OffQueueProcessStarted,
    QuotaSet,
    QuotaUnset,
    ShareSet,
)
from controller.core.model.events.workloads import WorkloadRetried, WorkloadSubmitted
from controller.core.model.inputs import (
    access_inputs,
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.model.inputs.input import Input, Requester
from controller.core.model.start_estimates import PROMISE
from controller.core.rebalance.rebalancer import STRATEGY
from wire.codec import encode
from wire.job.start_conditions import Until
from wire.names import JobState, Reason


class JournalPosition(Protocol):
    """The data that show whether an input caused the journal entry that is being read: the states of jobs
    before the entry, and the other entries with the same time.
    """

    def waits(self, job: int) -> bool:
        """Return whether the job is queued and not placed."""

    def at_once(self, kind: type[Any], job: int, at: float) -> bool:
        """Return whether the journal has an event of this kind about the job at the time `at`."""


class ReplayAgents(Protocol):
    """The virtual agents of a replay, which repeat recorded reports. RecordedAgents (agents.py) is the
    implementation."""

    def attempt(self, job: int) -> int: ...
    def silence(self, node: str, at: float) -> float: ...
    def hello(self, event: NodeJoined) -> Input | None: ...
    def ready(self, event: MemberReady) -> Input | None: ...
    def started(self, event: AttemptStarted | MembersStarted) -> Input | None: ...
    def saved(self, event: CheckpointSaved) -> Input | None: ...
    def steps(self, event: StepsRecorded) -> None: ...
    def exited(self, event: AttemptExited | MembersExited) -> Input | None: ...
    def configured(self, event: ConfigApplied) -> Input | None: ...


@dataclass(frozen=True, slots=True)
class InputTrace:
    """An event of the class `event` proves that a certain input arrived at the engine, if `shows` returns
    True.

    The function `recreate` makes the input from the event, or returns None if the replay cannot repeat the
    input. If `recreate` is None, each field of the input gets the value of the event's field with the same
    name.
    """

    event: type[Any]
    recreate: Callable[[Any, ReplayAgents], Input | None] | None = None
    shows: Callable[[Any, JournalPosition], bool] = lambda _event, _past: True


@dataclass(frozen=True, slots=True)
class InternalInput:
    """An input that the controller makes without a user or an agent. `shows` returns whether an event proves
    that such an input arrived.
    """

    shows: Callable[[Event], bool]


def _cancelled_waiting(event: JobEnded, past: JournalPosition) -> bool:
    return event.state is JobState.CANCELLED and event.reason is Reason.USER and past.waits(event.job)


def _preempted_by_user(event: StopRequested, past: JournalPosition) -> bool:
    """Return whether a command of a user preempted the job. Return False if the job was preempted for another
    job, for a move, or because it was held.
    """
    led = (PreemptionPlanned, MovePlanned, JobHeld)
    return event.reason is Reason.PREEMPTED and not any(
        past.at_once(kind, event.job, event.at) for kind in led
    )


def _by_cycle(event: Event) -> bool:
    if isinstance(event, PreemptionPlanned):
        return event.strategy not in (STRATEGY, KEPT_ROOM)
    if isinstance(event, StartEstimated):
        return event.kind == PROMISE
    if isinstance(event, JobQueued):
        return event.replica is not None
    if isinstance(event, StopRequested):
        return event.reason is Reason.SERVICE
    if isinstance(event, JobEnded):
        return event.reason is Reason.SERVICE and event.code is None and event.signal is None
    return isinstance(event, JobPlaced | PredictionOutlived | HoursChanged)


def _restarted(event: Event) -> bool:
    return isinstance(event, NodeWentAway) and event.why == JUST_STARTED


def _changes(event: JobEdited) -> Mapping[str, Any]:
    values = encode(event.spec)
    # Leave out default values that the recorded policy computed, so that the policy of the replay computes
    # the defaults.
    defaults = event.spec.by_default
    return {
        name: None if name in defaults else values[name] for name in event.changed if name != "by_default"
    }


def _known(event: JobQueued | JobEdited) -> Mapping[str, JobState]:
    """Return final states, by display id (17 or 12_3), for the ended jobs on which a new or changed job
    depends.

    The controller read these states from its store, and the journal does not contain these states. With the
    returned states, the engine decides about each dependency as in the journal.
    """
    decided = [(index, True) for index in event.met] + [(index, False) for index in event.lost]
    return {
        event.spec.after[index].job: JobState.COMPLETED
        if met is not (event.spec.after[index].until is Until.NOT_OK)
        else JobState.FAILED
        for index, met in decided
    }


WAYS: Mapping[type[Any], tuple[InputTrace, ...] | InternalInput] = {
    job_inputs.Submit: (
        InputTrace(
            JobQueued,
            lambda event, _: job_inputs.Submit(event.spec, event.user, event.key, _known(event)),
            # One submit creates all elements of a job array, so only the event of the first element proves a
            # submit.
            lambda event, _: (
                event.array in (None, event.job) and event.replica is None and event.workload is None
            ),
        ),
    ),
    job_inputs.SubmitWorkload: (InputTrace(WorkloadSubmitted),),
    job_inputs.RetryWorkload: (InputTrace(WorkloadRetried),),
    # Do not repeat the cancel of a workload, because the end of each of its jobs proves an input Cancel.
    job_inputs.CancelWorkload: (),
    job_inputs.Cancel: (
        InputTrace(StopRequested, shows=lambda event, _: event.reason is Reason.USER),
        InputTrace(
            JobEnded,
            lambda event, _: job_inputs.Cancel(event.job, event.detail.removeprefix("cancelled by ")),
            _cancelled_waiting,
        ),
    ),
    job_inputs.Edit: (
        InputTrace(
            JobEdited,
            lambda event, _: job_inputs.Edit(event.job, event.by, _changes(event), _known(event)),
            lambda event, _: event.by != BY_CONTROLLER,
        ),
    ),
    job_inputs.Hold: (
        InputTrace(
            JobHeld,
            lambda event, _: job_inputs.Hold(event.job, event.by, Requester(event.by, event.operator)),
            lambda event, past: past.waits(event.job),
        ),
    ),
    job_inputs.Requeue: (InputTrace(StopRequested, shows=lambda event, _: event.reason is Reason.REQUEUED),),
    job_inputs.Preempt: (
        InputTrace(
            JobHeld,
            lambda event, _: job_inputs.Preempt(event.job, event.by, hold=True),
            lambda event, past: not past.waits(event.job),
        ),
        InputTrace(StopRequested, shows=_preempted_by_user),
    ),
    job_inputs.Release: (InputTrace(JobReleased),),
    node_inputs.AddNode: (InputTrace(NodeAdded),),
    node_inputs.PinKey: (InputTrace(HostKeyPinned),),
    controller_inputs.SealJournal: (InputTrace(JournalSealed),),
    node_inputs.RemoveNode: (InputTrace(NodeRemoved),),
    node_inputs.MarkNode: (InputTrace(NodeMarked),),
    controller_inputs.NoteStart: (InputTrace(StartEstimated, shows=lambda event, _: event.kind != PROMISE),),
    controller_inputs.NoteLongWait: (InputTrace(WaitAlarmed),),
    # Warnings for other reasons are left out, because a warning before a drain is a consequence of the input
    # Drain.
    controller_inputs.WarnOfLimit: (
        InputTrace(
            EndWarned,
            lambda event, _: controller_inputs.WarnOfLimit(
                event.job, event.attempt, event.reason is Reason.PREEMPTED
            ),
            lambda event, _: event.reason in (Reason.TIME_LIMIT, Reason.PREEMPTED),
        ),
    ),
    agent_inputs.NodeSilent: (
        InputTrace(
            NodeWentDown,
            lambda event, agents: agent_inputs.NodeSilent(event.node, agents.silence(event.node, event.at)),
        ),
    ),
    node_inputs.DeclareLost: (InputTrace(NodeDeclaredLost),),
    node_inputs.Drain: (InputTrace(NodeDrained),),
    node_inputs.Resume: (InputTrace(NodeResumed),),
    policy_inputs.SetQuota: (InputTrace(QuotaSet),),
    policy_inputs.UnsetQuota: (InputTrace(QuotaUnset),),
    policy_inputs.Reserve: (
        # Set anyway=True, because the controller accepted the reservation, and the replay must not refuse it.
        InputTrace(
            ReservationMade, lambda event, _: policy_inputs.Reserve(event.asked, event.by, anyway=True)
        ),
    ),
    policy_inputs.CancelReservation: (InputTrace(ReservationCancelled),),
    policy_inputs.Rebalance: (InputTrace(RebalancePlanned),),
    policy_inputs.SetShare: (InputTrace(ShareSet),),
    controller_inputs.ApplyConfig: (
        InputTrace(ConfigApplied, lambda event, agents: agents.configured(event)),
    ),
    agent_inputs.AgentSaidHello: (InputTrace(NodeJoined, lambda event, agents: agents.hello(event)),),
    agent_inputs.AgentReported: (
        InputTrace(MemberReady, lambda event, agents: agents.ready(event)),
        InputTrace(AttemptStarted, lambda event, agents: agents.started(event)),
        InputTrace(CheckpointSaved, lambda event, agents: agents.saved(event)),
        InputTrace(StepsRecorded, lambda event, agents: agents.steps(event)),
        InputTrace(AttemptExited, lambda event, agents: agents.exited(event)),
    ),
    agent_inputs.MembersReported: (
        InputTrace(MembersStarted, lambda event, agents: agents.started(event)),
        InputTrace(MembersExited, lambda event, agents: agents.exited(event)),
    ),
    agent_inputs.GpusIdle: (
        InputTrace(IdleNoted),
        InputTrace(
            StopRequested,
            lambda event, agents: agent_inputs.GpusIdle(event.job, agents.attempt(event.job), event.at),
            lambda event, _: event.reason is Reason.IDLE,
        ),
    ),
    agent_inputs.HealthReported: (InputTrace(HealthChanged),),
    access_inputs.CreateToken: (
        # Do not limit the number of tokens, because the controller accepted the token.
        InputTrace(TokenCreated, lambda event, _: access_inputs.CreateToken(event.token, 1 << 30)),
    ),
    # Leave out tokens that the controller revoked, because CreateToken also removes tokens that expired long
    # ago.
    access_inputs.RevokeToken: (InputTrace(TokenRevoked, shows=lambda event, _: event.by != BY_CONTROLLER),),
    policy_inputs.RestartService: (InputTrace(ServiceRestarted),),
    policy_inputs.ScaleService: (InputTrace(ServiceScaled),),
    agent_inputs.GpusBusy: (InputTrace(IdleEnded),),
    job_inputs.KeepIdle: (
        InputTrace(
            IdleKept,
            lambda event, _: job_inputs.KeepIdle(event.job, event.by, event.until - event.at, event.why),
        ),
    ),
    controller_inputs.DataFound: (InputTrace(DependencyDecided, shows=lambda event, _: bool(event.path)),),
    agent_inputs.GpuReported: (InputTrace(GpuHealthRecorded),),
    # A replay does not repeat problems, checks and resets of GPUs, because a check could have another result.
    # It repeats the recorded change of the GPU's health instead.
    agent_inputs.GpuTroubled: (),
    agent_inputs.GpuChecked: (),
    agent_inputs.GpuWasReset: (),
    agent_inputs.OffQueueProcessSeen: (InputTrace(OffQueueProcessStarted),),
    agent_inputs.OffQueueProcessGone: (InputTrace(OffQueueProcessEnded),),
    node_inputs.CordonGpu: (),
    node_inputs.ResumeGpu: (),
    agent_inputs.LinkWentDown: (InputTrace(NodeWentAway, shows=lambda event, _: not _restarted(event)),),
    controller_inputs.ControllerStarted: InternalInput(_restarted),
    controller_inputs.Tick: InternalInput(_by_cycle),
}
"""For each kind of input that a user or an agent sends: the events that prove its arrival. A replay does not
repeat an input with an empty tuple. For an input that the controller makes itself: an InternalInput.
"""

FOLLOW: frozenset[type[Any]] = frozenset(
    {
        GateClosed,
        JobPromoted,
        JobRelaxed,
        GateOpened,
        GpuFaultNoted,
        JobGrew,
        JobPlaced,
        JobPreempted,
        JobRequeued,
        JobShrunk,
        MovePlanned,
        MoveUndone,
        PluginFailed,
        PredictionOutlived,
        PriorityInherited,
        DeadlineAtRisk,
        DrainBegan,
        PreemptionDropped,
        PreemptionPlanned,
        ReservationBegan,
        ReservationEnded,
        BudgetReached,
        HoursChanged,
    }
)
"""Kinds of events that never prove the arrival of an input. Each is a consequence of another input or of a
scheduling cycle.
"""

_TRACES: dict[type[Any], list[tuple[type[Any], InputTrace]]] = {}
for _kind, _way in WAYS.items():
    for _trace in _way if isinstance(_way, tuple) else ():
        _TRACES.setdefault(_trace.event, []).append((_kind, _trace))


def input_of(event: Event, past: JournalPosition) -> type[Any] | None:
    """Return the class of the input whose arrival this event proves; None if the event is a consequence of an
    earlier input or of a scheduling cycle.
    """
    return next((kind for kind, trace in _TRACES.get(type(event), ()) if trace.shows(event, past)), None)


def recreate_input(kind: type[Any], event: Event, agents: ReplayAgents) -> Input | None:
    """Return an input of the class `kind`, made from the event that proves its arrival. Return None if the
    replay cannot repeat the input, for example because the attempt differs from the recorded one."""
    [trace] = [trace for known, trace in _TRACES[type(event)] if known is kind]
    if trace.recreate is not None:
        return trace.recreate(event, agents)
    same = {each.name: getattr(event, each.name) for each in fields(kind) if hasattr(event, each.name)}
    found: Input = kind(**same)
    return found


def traced() -> Iterator[type[Any]]:
    """Yield the kinds of events that can prove the arrival of an input."""
    return iter(_TRACES)
