"""Everything that can happen to the engine, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.core.effects import Effect, SendToNode
from controller.core.events import Event
from wire.affinity import Taint
from wire.frames import AttemptStatus, Hello
from wire.hosts import HostSpec
from wire.quota import Quota
from wire.reservation import ReservationSpec
from wire.spec import JobSpec
from wire.words import GpuHealth, JobState, TroubleKind


@dataclass(frozen=True, slots=True)
class Submit:
    """A user hands in a job or an array; `key` makes a retry harmless."""

    spec: JobSpec
    user: str
    key: str = ""
    known: Mapping[str, JobState] = field(default_factory=dict)
    """How jobs ended that it depends on and that the state has forgotten, by label."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the job wherever it is."""

    job: int
    by: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Change what a job asks for: fields of its spec as JSON has them; None: as if left out."""

    job: int
    by: str
    changes: Mapping[str, Any]
    known: Mapping[str, JobState] = field(default_factory=dict)
    """As in Submit."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a queued job from starting."""

    job: int
    by: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let a held job start again."""

    job: int
    by: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """End the attempt of a job, and queue the job again in its old place; with `hold` it stays there."""

    job: int
    by: str
    hold: bool = False


@dataclass(frozen=True, slots=True)
class AddNode:
    """The configuration names this node, or an operator adds it with the way to its host."""

    node: str
    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class PinKey:
    """Whoever speaks for a node's host has to show this key, as OpenSSH writes it."""

    node: str
    key: str
    by: str


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """The node does not belong to the cluster any more."""

    node: str
    by: str


@dataclass(frozen=True, slots=True)
class MarkNode:
    """Set labels and taints of a node, or take them away (None); a taint's name is `key:Effect`."""

    node: str
    by: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drain:
    """Give the node no new work."""

    node: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Give the node work again."""

    node: str
    by: str


@dataclass(frozen=True, slots=True)
class SetQuota:
    """Lay these limits over what holds for a user, project or queue now."""

    scope: str
    name: str
    quota: Quota
    by: str


@dataclass(frozen=True, slots=True)
class UnsetQuota:
    """Let what the configuration states hold again."""

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep nodes for a time; with `anyway` although jobs on them may run into it."""

    spec: ReservationSpec
    by: str
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Do what a proposal says, if it still holds; without one, whatever can be proposed now."""

    by: str
    proposal: str = ""


@dataclass(frozen=True, slots=True)
class CancelReservation:
    """Keep them no longer."""

    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class AgentSaidHello:
    """A link came up; the agent told everything it knows."""

    node: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentReported:
    """One attempt changed on a node."""

    node: str
    status: AttemptStatus


@dataclass(frozen=True, slots=True)
class MembersReported:
    """Several members of one attempt changed: what each node tells. As if they had come one by one."""

    job: int
    attempt: int
    told: Mapping[str, AttemptStatus]


@dataclass(frozen=True, slots=True)
class GpuReported:
    """A GPU's health in full, as somebody else has judged it: how a past is lived again."""

    node: str
    uuid: str
    health: GpuHealth
    why: str = ""
    needs: str = ""
    falls: int = 0
    good: int = 0
    due: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class GpuTroubled:
    """An agent says that something is wrong with a GPU."""

    node: str
    uuid: str
    kind: TroubleKind
    why: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class GpuLooked:
    """An agent has looked at a sick GPU."""

    node: str
    uuid: str
    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class GpuWasReset:
    """An agent has reset a GPU, or could not."""

    node: str
    uuid: str
    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class StrangerSeen:
    """A user has a process on a GPU past the queue; the first of his that was seen."""

    node: str
    uuid: str
    user: str
    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class StrangerGone:
    """He has none there any more."""

    node: str
    uuid: str
    user: str


@dataclass(frozen=True, slots=True)
class CordonGpu:
    """Give one GPU, by its index, no new work."""

    node: str
    gpu: int
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResumeGpu:
    """Give a GPU work again, if it is well."""

    node: str
    gpu: int
    by: str


@dataclass(frozen=True, slots=True)
class GpusIdle:
    """All GPUs of a job have done nothing since then, which is long enough to be told."""

    job: int
    attempt: int
    since: float


@dataclass(frozen=True, slots=True)
class GpusBusy:
    """A GPU of a job that was told to idle works again."""

    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class DataFound:
    """A path that jobs wait for is there."""

    path: str


@dataclass(frozen=True, slots=True)
class LinkWentDown:
    """A link is gone."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class NoteStart:
    """Somebody was told when a waiting job is to start; that is kept, unless there is one like it."""

    job: int
    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """Nobody has heard of a node for so long, by a clock that does not jump."""

    node: str
    for_s: float


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """An operator vouches that nothing runs on the node any more."""

    node: str
    by: str


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """The state was made from rows; these nodes were there before, and nobody has heard of them yet."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetShare:
    """Give an organisation, project or user (`project/user`) a weight or limits; None: leave it as it is."""

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time to place what can be placed."""


Input = (
    Submit
    | Cancel
    | Edit
    | Hold
    | Release
    | Preempt
    | AddNode
    | PinKey
    | RemoveNode
    | MarkNode
    | Drain
    | Resume
    | SetQuota
    | UnsetQuota
    | Reserve
    | CancelReservation
    | Rebalance
    | AgentSaidHello
    | AgentReported
    | MembersReported
    | GpuReported
    | GpusIdle
    | GpusBusy
    | DataFound
    | GpuTroubled
    | GpuLooked
    | GpuWasReset
    | StrangerSeen
    | StrangerGone
    | CordonGpu
    | ResumeGpu
    | LinkWentDown
    | NoteStart
    | NodeSilent
    | DeclareLost
    | ControllerStarted
    | SetShare
    | Tick
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Done; the ids of the jobs concerned, in order."""

    jobs: tuple[int, ...] = ()


DONE = Accepted()
"""What nearly all inputs are answered with."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Not done, and nothing changed: `code` as in wire.api.problem."""

    code: str
    message: str
    where: str = ""
    hint: str = ""


Reply = Accepted | Refusal


@dataclass(frozen=True, slots=True)
class Decision:
    """What one input led to: facts to keep, orders to carry out after they are kept, and the answer."""

    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    reply: Reply = DONE

    @property
    def orders(self) -> list[SendToNode]:
        """What is to be sent, node by node."""
        return [order for effect in self.effects for order in effect.orders()]


def no_such_job(job: int) -> Refusal:
    """Nobody knows it."""
    return Refusal("not_found", f"there is no job {job}", "job", "'corral queue --all' shows what there is.")


def no_such_node(node: str) -> Refusal:
    """Nobody knows it."""
    return Refusal("not_found", f"there is no node {node!r}", "node", "'corral nodes' shows what there is.")
