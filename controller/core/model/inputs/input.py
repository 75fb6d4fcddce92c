"""The base classes of all inputs of the engine, and the user that sends a command."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Input:
    """The base class of all inputs of the engine: commands, reports of agents and the clock."""


@dataclass(frozen=True, slots=True)
class JobCommand(Input):
    """A command of the user `by` on one job."""

    job: int
    by: str


@dataclass(frozen=True, slots=True)
class NodeCommand(Input):
    """A command of the operator `by` on one node."""

    node: str
    by: str


@dataclass(frozen=True, slots=True)
class GpuInput(Input):
    node: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Requester:
    """The user that sends a command: a submit, an edit, a hold or a release. The rights of the user determine
    the ceilings of requests, the projects that the user may use, and the holds that the user may release. For
    an admin, both `operator` and `admin` are True.
    """

    user: str
    operator: bool = False
    admin: bool = False
    projects: frozenset[str] | None = None
    """The only projects that the command may concern, if it was sent with a token for some projects; None for
    all projects."""
