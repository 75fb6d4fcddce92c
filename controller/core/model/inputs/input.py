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
    """The user that sends a command, such as a submit or an edit, with the rights of the user. These rights
    determine the ceilings of requests, the projects that the user may use, and the holds that the user may
    release. For an admin, both `operator` and `admin` are True.
    """

    user: str
    operator: bool = False
    admin: bool = False
    projects: frozenset[str] | None = None
    """The command may act only on jobs in these projects, because it was sent with a token that is limited to
    them. None: all projects.
    """
