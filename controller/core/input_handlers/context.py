"""The context of input handlers: the state, the configuration, and the parts of the engine that the handlers
use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.core.backfill.profiles.profile_cycles import ProfileCycles
from controller.core.lifecycle.due_jobs import DueJobs
from controller.core.lifecycle.gpu_health_handler import GpuHealthHandler
from controller.core.lifecycle.idle_gpus import IdleGpuHandler
from controller.core.lifecycle.stop import Stopper
from controller.core.model.decision.effects import Effect
from controller.core.model.events.event import Event
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State


@dataclass(frozen=True, slots=True)
class Context:
    """The state, the configuration, and the parts of the engine that handlers of inputs use. The engine
    creates one Context for all handlers.

    Calling `record` applies an event to the state at once, and adds the event to the Decision (the result of
    the input). Calling `order` adds an effect (a message to an agent) to the Decision. Effects are sent after
    the events are written to disk.
    """

    state: State
    pipeline: Pipeline
    cycles: ProfileCycles
    due_jobs: DueJobs
    gpu_health: GpuHealthHandler
    idle_gpus: IdleGpuHandler
    stopper: Stopper
    record: Callable[[Event], None]
    order: Callable[[Effect], None]
