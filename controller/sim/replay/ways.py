"""How each input shows in the journal, and how it comes again: the one table that a new input must join.

An event is the trace of an input if nothing else leads to it. What else is in the journal follows: from the
input before it at the same moment or, where there is none, from a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from controller.core import events, inputs
from controller.core.events import Event
from controller.core.foresight import PROMISE
from controller.core.inputs import Input
from controller.core.nodes import JUST_STARTED
from controller.core.rebalancing import STRATEGY
from wire.codec import encode
from wire.conditions import Until
from wire.words import JobState, Reason


class Past(Protocol):
    """What is known of the journal up to an event."""

    def waits(self, job: int) -> bool:
        """Is the job in the queue, nothing of it placed?"""

    def at_once(self, kind: type[Any], job: int, at: float) -> bool:
        """Did an event of this kind concern the job at this very moment?"""


class Agents(Protocol):
    """What agents would tell, when they told something then."""

    def attempt(self, job: int) -> int: ...
    def silence(self, node: str, at: float) -> float: ...
    def hello(self, event: events.NodeJoined) -> Input | None: ...
    def ready(self, event: events.MemberReady) -> Input | None: ...
    def started(self, event: events.AttemptStarted | events.MembersStarted) -> Input | None: ...
    def saved(self, event: events.CheckpointSaved) -> Input | None: ...
    def exited(self, event: events.AttemptExited | events.MembersExited) -> Input | None: ...


@dataclass(frozen=True, slots=True)
class Trace:
    """One kind of event that shows that an input came; `again` makes it anew, unless it has become void."""

    event: type[Any]
    again: Callable[[Any, Agents], Input | None]
    shows: Callable[[Any, Past], bool] = lambda _event, _past: True


@dataclass(frozen=True, slots=True)
class Inner:
    """An input that the controller gives itself; `shows` its traces, as far as any event is one by itself."""

    shows: Callable[[Event], bool]


def _by_user(event: events.StopRequested, _past: Past) -> bool:
    return event.reason is Reason.USER


def _cancelled_waiting(event: events.JobEnded, past: Past) -> bool:
    return event.state is JobState.CANCELLED and event.reason is Reason.USER and past.waits(event.job)


def _preempted_by_user(event: events.StopRequested, past: Past) -> bool:
    """Not for a job that the controller prefers or a move, and not shown by a hold already."""
    led = (events.PreemptionPlanned, events.MovePlanned, events.JobHeld)
    return event.reason is Reason.PREEMPTED and not any(
        past.at_once(kind, event.job, event.at) for kind in led
    )


def _by_cycle(event: Event) -> bool:
    if isinstance(event, events.PreemptionPlanned):
        return event.strategy != STRATEGY
    if isinstance(event, events.StartEstimated):
        return event.kind == PROMISE
    return isinstance(event, events.JobPlaced | events.PredictionOutlived)


def _restarted(event: Event) -> bool:
    return isinstance(event, events.NodeWentAway) and event.why == JUST_STARTED


def _changes(event: events.JobEdited) -> Mapping[str, Any]:
    told = encode(event.spec)
    return {name: told[name] for name in event.changed}


def _known(event: events.JobQueued | events.JobEdited) -> Mapping[str, JobState]:
    """How jobs had ended that were looked up in the store: as what was decided then says."""
    decided = [(index, True) for index in event.met] + [(index, False) for index in event.lost]
    return {
        event.spec.after[index].job: JobState.COMPLETED
        if met is not (event.spec.after[index].until is Until.NOT_OK)
        else JobState.FAILED
        for index, met in decided
    }


WAYS: Mapping[type[Any], tuple[Trace, ...] | Inner] = {
    inputs.Submit: (
        Trace(
            events.JobQueued,
            lambda event, _: inputs.Submit(event.spec, event.user, event.key, _known(event)),
            lambda event, _: event.array in (None, event.job),  # one submit for all elements
        ),
    ),
    inputs.Cancel: (
        Trace(events.StopRequested, lambda event, _: inputs.Cancel(event.job, event.by), _by_user),
        Trace(
            events.JobEnded,
            lambda event, _: inputs.Cancel(event.job, event.detail.removeprefix("cancelled by ")),
            _cancelled_waiting,
        ),
    ),
    inputs.Edit: (
        Trace(
            events.JobEdited,
            lambda event, _: inputs.Edit(event.job, event.by, _changes(event), _known(event)),
        ),
    ),
    inputs.Hold: (
        Trace(
            events.JobHeld,
            lambda event, _: inputs.Hold(event.job, event.by),
            lambda event, past: past.waits(event.job),
        ),
    ),
    inputs.Preempt: (
        Trace(
            events.JobHeld,
            lambda event, _: inputs.Preempt(event.job, event.by, hold=True),
            lambda event, past: not past.waits(event.job),
        ),
        Trace(events.StopRequested, lambda event, _: inputs.Preempt(event.job, event.by), _preempted_by_user),
    ),
    inputs.Release: (Trace(events.JobReleased, lambda event, _: inputs.Release(event.job, event.by)),),
    inputs.AddNode: (
        Trace(
            events.NodeAdded,
            lambda event, _: inputs.AddNode(event.node, event.labels, event.host, event.by, event.taints),
        ),
    ),
    inputs.PinKey: (
        Trace(events.HostKeyPinned, lambda event, _: inputs.PinKey(event.node, event.key, event.by)),
    ),
    inputs.RemoveNode: (Trace(events.NodeRemoved, lambda event, _: inputs.RemoveNode(event.node, event.by)),),
    inputs.MarkNode: (
        Trace(
            events.NodeMarked,
            lambda event, _: inputs.MarkNode(event.node, event.by, event.labels, event.taints),
        ),
    ),
    inputs.NoteStart: (
        Trace(
            events.StartEstimated,
            lambda event, _: inputs.NoteStart(event.job, event.kind, event.start),
            lambda event, _: event.kind != PROMISE,
        ),
    ),
    inputs.NodeSilent: (
        Trace(
            events.NodeWentDown,
            lambda event, agents: inputs.NodeSilent(event.node, agents.silence(event.node, event.at)),
        ),
    ),
    inputs.DeclareLost: (
        Trace(events.NodeDeclaredLost, lambda event, _: inputs.DeclareLost(event.node, event.by)),
    ),
    inputs.Drain: (
        Trace(events.NodeDrained, lambda event, _: inputs.Drain(event.node, event.by, event.why)),
    ),
    inputs.Resume: (Trace(events.NodeResumed, lambda event, _: inputs.Resume(event.node, event.by)),),
    inputs.SetQuota: (
        Trace(
            events.QuotaSet,
            lambda event, _: inputs.SetQuota(event.scope, event.name, event.quota, event.by),
        ),
    ),
    inputs.UnsetQuota: (
        Trace(events.QuotaUnset, lambda event, _: inputs.UnsetQuota(event.scope, event.name, event.by)),
    ),
    inputs.Reserve: (
        # Whatever ran into it then, it was accepted.
        Trace(events.ReservationMade, lambda event, _: inputs.Reserve(event.asked, event.by, anyway=True)),
    ),
    inputs.CancelReservation: (
        Trace(
            events.ReservationCancelled,
            lambda event, _: inputs.CancelReservation(event.reservation, event.by),
        ),
    ),
    inputs.Rebalance: (
        Trace(events.RebalancePlanned, lambda event, _: inputs.Rebalance(event.by, event.proposal)),
    ),
    inputs.SetShare: (
        Trace(
            events.ShareSet,
            lambda event, _: inputs.SetShare(event.share, event.weight, event.by, event.soft, event.hard),
        ),
    ),
    inputs.AgentSaidHello: (Trace(events.NodeJoined, lambda event, agents: agents.hello(event)),),
    inputs.AgentReported: (
        Trace(events.MemberReady, lambda event, agents: agents.ready(event)),
        Trace(events.AttemptStarted, lambda event, agents: agents.started(event)),
        Trace(events.CheckpointSaved, lambda event, agents: agents.saved(event)),
        Trace(events.AttemptExited, lambda event, agents: agents.exited(event)),
    ),
    inputs.MembersReported: (
        Trace(events.MembersStarted, lambda event, agents: agents.started(event)),
        Trace(events.MembersExited, lambda event, agents: agents.exited(event)),
    ),
    inputs.GpusIdle: (
        Trace(events.IdleNoted, lambda event, _: inputs.GpusIdle(event.job, event.attempt, event.since)),
        Trace(
            events.StopRequested,
            lambda event, agents: inputs.GpusIdle(event.job, agents.attempt(event.job), event.at),
            lambda event, _: event.reason is Reason.IDLE,
        ),
    ),
    inputs.GpusBusy: (Trace(events.IdleEnded, lambda event, _: inputs.GpusBusy(event.job, event.attempt)),),
    inputs.DataFound: (
        Trace(
            events.DependencyDecided,
            lambda event, _: inputs.DataFound(event.path),
            lambda event, _: bool(event.path),
        ),
    ),
    inputs.GpuReported: (
        Trace(
            events.GpuHealthRecorded,
            lambda event, _: inputs.GpuReported(
                event.node,
                event.uuid,
                event.health,
                event.why,
                event.needs,
                event.falls,
                event.good,
                event.due,
                event.by,
            ),
        ),
    ),
    # What these led to is told by the trace above; what a look would say today nobody can know.
    inputs.GpuTroubled: (),
    inputs.GpuLooked: (),
    inputs.GpuWasReset: (),
    inputs.StrangerSeen: (
        Trace(
            events.StrangerCame,
            lambda event, _: inputs.StrangerSeen(
                event.node, event.uuid, event.user, event.pid, event.command
            ),
        ),
    ),
    inputs.StrangerGone: (
        Trace(
            events.StrangerLeft,
            lambda event, _: inputs.StrangerGone(event.node, event.uuid, event.user),
        ),
    ),
    inputs.CordonGpu: (),
    inputs.ResumeGpu: (),
    inputs.LinkWentDown: (
        Trace(
            events.NodeWentAway,
            lambda event, _: inputs.LinkWentDown(event.node, event.why),
            lambda event, _: not _restarted(event),
        ),
    ),
    inputs.ControllerStarted: Inner(_restarted),
    inputs.Tick: Inner(_by_cycle),
}
"""Every input there is."""

FOLLOW: frozenset[type[Any]] = frozenset(
    {
        events.GateClosed,
        events.JobPromoted,
        events.JobRelaxed,
        events.GateOpened,
        events.GpuFaultNoted,
        events.JobGrew,
        events.JobPlaced,
        events.JobPreempted,
        events.JobRequeued,
        events.JobShrunk,
        events.MovePlanned,
        events.MoveUndone,
        events.PluginFailed,
        events.PredictionOutlived,
        events.PriorityInherited,
        events.DeadlineDoubted,
        events.PreemptionDropped,
        events.PreemptionPlanned,
        events.ReservationBegan,
        events.ReservationEnded,
    }
)
"""Events that are never the trace of anything."""

_TRACES: dict[type[Any], list[tuple[type[Any], Trace]]] = {}
for _kind, _way in WAYS.items():
    for _trace in _way if isinstance(_way, tuple) else ():
        _TRACES.setdefault(_trace.event, []).append((_kind, _trace))


def input_of(event: Event, past: Past) -> type[Any] | None:
    """The kind of input that this event shows."""
    return next((kind for kind, trace in _TRACES.get(type(event), ()) if trace.shows(event, past)), None)


def again(kind: type[Any], event: Event, agents: Agents) -> Input | None:
    """The input of this kind that the event shows, made anew."""
    [trace] = [trace for known, trace in _TRACES[type(event)] if known is kind]
    return trace.again(event, agents)


def traced() -> Iterator[type[Any]]:
    """The kinds of events that can be traces."""
    return iter(_TRACES)
