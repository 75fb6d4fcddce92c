"""The events of a scheduling cycle, and the function that records and applies each event."""

from __future__ import annotations

from collections.abc import Callable

from controller.core.model.events.attempts import JobGrew, JobPlaced, PredictionOutlived
from controller.core.model.events.nominations import MoveUndone, PreemptionDropped, PreemptionPlanned
from controller.core.model.events.queued import DeadlineAtRisk, StartEstimated

CycleEvent = (
    JobPlaced
    | PredictionOutlived
    | DeadlineAtRisk
    | StartEstimated
    | JobGrew
    | PreemptionPlanned
    | PreemptionDropped
    | MoveUndone
)
Apply = Callable[[CycleEvent], None]
"""Records an event, and applies the event to the state. The rest of the cycle works with the changed
state.
"""
