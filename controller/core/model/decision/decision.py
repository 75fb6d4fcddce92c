"""The decision of the engine on one input, and its reply: the input is accepted or refused."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.event import Event


@dataclass(frozen=True, slots=True)
class Accepted:
    """The input was accepted and carried out. `jobs` contains the ids of the submitted or changed jobs.
    `notes` contains sentences for the user about values of a submitted spec that the controller has changed.
    `workload` is the id of a submitted workload.
    """

    jobs: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    workload: int | None = None


DONE = Accepted()
"""The reply to an accepted input that has no job ids to return."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The input was refused, and nothing has changed. `code` is one of the codes in wire.api.problem."""

    code: str
    message: str
    where: str = ""
    hint: str = ""


Reply = Accepted | Refusal


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one input: events to write to the journal, effects (messages to agents) to send
    afterwards, and the reply.
    """

    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    reply: Reply = DONE

    @property
    def orders(self) -> list[SendToNode]:
        """Return the effects as one message for each node and effect."""
        return [order for effect in self.effects for order in effect.orders()]


def no_such_job(job: int | str) -> Refusal:
    return Refusal("not_found", f"there is no job {job}", "job", "'corral queue --all' lists all jobs.")


def no_such_node(node: str) -> Refusal:
    return Refusal("not_found", f"there is no node {node!r}", "node", "'corral nodes' lists all nodes.")
