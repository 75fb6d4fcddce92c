"""Inputs that the controller itself makes: the clock, its start, its configuration and its records."""

from __future__ import annotations

from typing import Any

from controller.core.model.dataclass import dataclass
from controller.core.model.inputs.input import Input


@dataclass(frozen=True, slots=True)
class SealJournal(Input):
    """Record that the journal entries up to number `through` will be deleted. `digest` is the hash of entry
    `through`.
    """

    through: int
    digest: str


@dataclass(frozen=True, slots=True)
class DataFound(Input):
    """A path in the file system now exists. Jobs that depend on the path can start."""

    path: str


@dataclass(frozen=True, slots=True)
class NoteStart(Input):
    """Record an estimated start of a waiting job, made with the method `kind`. When the job starts, its start
    is compared with the estimate. Do nothing if enough estimates of the job are recorded (`should_record`).
    """

    job: int
    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class NoteLongWait(Input):
    """Record that a job has waited much longer than usual. Do nothing if this is already recorded. `usual_s`
    is the median wait in seconds of jobs in the same queue with a similar number of GPUs.
    """

    job: int
    usual_s: float


@dataclass(frozen=True, slots=True)
class WarnOfLimit(Input):
    """The owner of a job was warned that the time limit will end the job. With `window`, the owner was warned
    that the job may be preempted when its predicted run time is over.

    Only the replay of a journal sends this input.
    """

    job: int
    attempt: int
    window: bool = False


@dataclass(frozen=True, slots=True)
class ControllerStarted(Input):
    """The controller has started and loaded its state from the store. `nodes` are the nodes that were
    connected when the controller stopped. No agent is connected yet.
    """

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApplyConfig(Input):
    """Use another configuration. `pipeline` contains the new scheduling settings. With `pipeline` None, the
    scheduling policy stays unchanged.
    """

    digest: str
    by: str
    pipeline: Any | None = None
    changed: tuple[str, ...] = ()
    """The keys of scheduler.toml whose values differ from those of the configuration that was in use."""
    policy: str = ""
    """The tables that affect scheduling decisions, as JSON. A replay of the journal builds its pipeline from
    these tables.
    """


@dataclass(frozen=True, slots=True)
class Tick(Input):
    """The clock: act on everything that is due by now, and run a scheduling cycle."""
