"""The interface of an execution engine: a system that runs jobs for Corral, such as Docker, Slurm or
Kubernetes.

A package of a site provides an engine through the entry-point group `corral.engine`. The entry point names a
frozen dataclass, the engine type: its fields are the options of `[engines.NAME]`, and `connect` makes the
engine. examples/process_engine.py is a complete engine.
"""

from __future__ import annotations

import enum
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.reconnecting import CannotConnect
from controller.nodes.session import AgentChannel
from wire.agent.job_policy import JobPolicy
from wire.agent.orders import Start
from wire.agent.reports import NodeFacts, Usage
from wire.cluster.quota import Limits
from wire.job.spec import JobSpec

Ref = str
"""The name that an engine gives to a foreign job, such as the id of a container or the number of a Slurm
job.
"""


class EngineUnavailable(Exception):
    """Raised if the engine cannot be reached, or fails for a reason that has nothing to do with the job. It
    is unknown whether the request had an effect. The message says what failed, and what the operator can do.
    """


class AskRefused(Exception):
    """Raised by ask() if the engine has refused the job, so that nothing was started.

    With `lasting`, the same job will be refused again, and the attempt fails. If it is False, Corral calls
    ask() again for `ask_patience_s` seconds, because the reason may pass, such as a limit or a full disk.
    """

    def __init__(self, why: str, *, lasting: bool = False) -> None:
        super().__init__(why)
        self.why, self.lasting = why, lasting


class EngineKind(enum.Enum):
    """How an engine runs jobs. With PILOT the engine starts Corral's agent, and the agent runs jobs. With
    DELEGATE the engine runs each job itself.
    """

    PILOT = "pilot"
    DELEGATE = "delegate"


@dataclass(frozen=True, slots=True)
class EngineCaps:
    """What an engine can do. Of the fields of the order Start in unsupported_requests.FLAGS, `supports` has
    those that the engine supports. A job that sets another one of these fields is refused.
    """

    kinds: tuple[EngineKind, ...] = (EngineKind.DELEGATE,)
    supports: frozenset[str] = frozenset()
    logs: bool = False
    gangs: bool = False
    """True if the parts of a job on several nodes of the engine can reach each other over the network."""
    walltime: bool = False
    """True if the engine itself ends a foreign job at the job's time limit."""


class ForeignState(enum.Enum):
    """The state of a foreign job in the answer of look()."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """One foreign job in the answer of look(). `where` is the part of the engine in which it waits or runs,
    such as a partition, and `reason` the engine's reason why the job waits. `ask_again` is True if the
    request to start a waiting job may be lost, so that ask() must be called again with the same tag.
    """

    tag: str
    ref: Ref
    state: ForeignState
    where: str = ""
    reason: str = ""
    ask_again: bool = False


@dataclass(frozen=True, slots=True)
class ForeignNode:
    """One node of an engine: a machine or a partition. `facts` has its resources and labels.

    `available` is False if an administrator of the engine has drained the node, for the reason `why`. A
    `temporary` node, such as a cloud VM or a pilot, is removed from Corral when the engine no longer lists
    it. A `pilot` node runs Corral's agent, which `connect` of the engine reaches.
    """

    name: str
    facts: NodeFacts
    available: bool = True
    why: str = ""
    temporary: bool = False
    pilot: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer of look(). `complete` is True only if no foreign job with a tag of this cluster is missing.

    `age_s` is the age of the answer in seconds, for engines that answer from a cache.
    """

    complete: bool
    jobs: tuple[ForeignJob, ...]
    nodes: tuple[ForeignNode, ...]
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt on one node of the engine. `node` is the engine's name of the node."""

    node: str
    order: Start


@dataclass(frozen=True, slots=True)
class Outcome:
    """The proof of how a foreign job ended. `why` is empty, or begins with a word of AttemptStatus.why, such
    as `out_of_memory` or `time_limit`. PREEMPTED_THERE means that the engine itself ended the job for
    another job.
    """

    code: int | None = None
    signal: int | None = None
    why: str = ""
    usage: Usage | None = None


PREEMPTED_THERE = "node_lost: preempted by the engine"
"""The `why` of an Outcome for a job that the engine has preempted. The job is queued again if its
on_node_lost permits this.
"""


@dataclass(frozen=True, slots=True)
class Need:
    """The resources that a waiting job needs of one new node."""

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_model: str = ""
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes that the engine could provide, at most `most`: their shape and zone, the seconds until such a
    node is ready, and its price in money per hour. `facts.labels` has the labels of such a node.
    """

    shape: str
    facts: NodeFacts
    ready_in_s: float = 0.0
    price_per_hour: float = 0.0
    zone: str = ""
    most: int = 1_000_000


@dataclass(frozen=True, slots=True)
class ForeignLimit:
    """A limit that the engine sets for Corral, such as a quota, with the amount in use."""

    name: str
    used: float
    limit: float


@dataclass(frozen=True, slots=True)
class ForeignQuota:
    """The limits of one namespace or account of an engine, and the amounts in use there. If a limit is None,
    the engine does not set it.
    """

    hard: Limits
    used: Limits


@dataclass(frozen=True, slots=True)
class PilotAgent:
    """The values with which an engine starts the agent of a pilot node: the node's name in Corral, the
    settings for jobs, the name by which the agent recognises its controller (`cluster`), and the controller's
    epoch (`leader`).
    """

    node: str
    jobs: JobPolicy
    cluster: str
    leader: Leadership = ALONE


class ExecutionEngine(ABC):
    """A connected execution engine.

    1. look() shows all foreign jobs and nodes. Corral calls it at each interval, and polls no single job.
    2. ask() starts one foreign job that bears the tag. It is idempotent: with the same tag it returns the
       foreign job that exists. `again` is True if an earlier ask() with this tag may have succeeded.
    3. end() asks the engine to end a foreign job. Corral repeats it until a look or a proof shows the end.
    4. proof() returns how a foreign job ended, from the engine's accounting or from a record that the job's
       wrapper wrote; None while there is no proof.
    5. forget() removes the files and the entry of an ended foreign job, after Corral has stored its end.

    All methods may raise EngineUnavailable. A method must not change a foreign job without a tag of
    this cluster.
    """

    caps: ClassVar[EngineCaps] = EngineCaps()

    @abstractmethod
    async def look(self) -> Seen:
        """Return all foreign jobs with a tag of this cluster, and all nodes, with as few requests as
        possible.
        """

    @abstractmethod
    async def ask(self, task: Task, tag: str, *, again: bool) -> Ref:
        """Start a foreign job, and return its name. Raise AskRefused if the engine refuses the job."""

    @abstractmethod
    async def end(self, ref: Ref, grace_s: float) -> None:
        """Ask the engine to end a foreign job: SIGTERM, then SIGKILL after `grace_s` seconds. The driver
        calls end() again while the foreign job exists, also after a restart of the controller. `grace_s` is
        the part of the grace time that is left. A foreign job that does not exist is no error.
        """

    @abstractmethod
    async def proof(self, ref: Ref, tag: str) -> Outcome | None:
        """Return how the foreign job ended; None if there is no proof (yet)."""

    @abstractmethod
    def script(self, task: Task, tag: str) -> str:
        """Return the text that ask() sends to the engine, for users and tests. Make no request, and change
        nothing.
        """

    async def forget(self, ref: Ref, tag: str) -> None:  # noqa: B027 - some engines keep nothing
        """Remove the files and the entry of an ended foreign job. A job that does not exist is no error."""

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        """Yield the output of a foreign job from its first byte on. `stream` is stdout or stderr. With
        `follow`, continue until the foreign job has ended.
        """
        raise EngineUnavailable("this engine does not give the output of jobs")
        yield b""

    def refusal(self, spec: JobSpec, user: str) -> str:
        """Return why the engine can never run this job of the user; empty if it may. Called at the submit of
        jobs that name the engine. Make no request.
        """
        return ""

    async def offers(self, need: Need) -> tuple[Offer, ...]:
        """Return the nodes that the engine could provide for this need."""
        return ()

    async def limits(self) -> tuple[ForeignLimit, ...]:
        """Return the limits that the engine sets for Corral."""
        return ()

    async def quota(self, name: str) -> ForeignQuota:
        """Return the quota of a namespace or an account of the engine. Raise EngineUnavailable if there is no
        such namespace or account, so that the last known limits stay in force.
        """
        raise EngineUnavailable("this engine has no quotas that Corral can read")

    async def connect(self, node: str, agent: PilotAgent) -> AgentChannel:
        """Start or find the agent on a pilot node, and open a channel to it. Raise CannotConnect if this
        fails. controller/nodes/agent has the agent program and its arguments.
        """
        raise CannotConnect("this engine has no pilot nodes")

    async def close(self) -> None:  # noqa: B027 - some engines hold no connection
        """Close the connections to the engine. Foreign jobs continue."""


@dataclass(frozen=True, slots=True)
class EngineScope:
    """The values from which `connect` of an engine type makes an engine: its name in scheduler.toml, the
    first part of all tags of this cluster, a directory of mode 0700 for its own files, the seconds for one
    request and between two looks, and the controller's clock.
    """

    name: str
    tag_prefix: str
    directory: str
    timeout_s: float = 30.0
    interval_s: float = 10.0
    now: Callable[[], float] = time.time


class EngineType(Protocol):
    """A frozen dataclass that a package registers under `corral.engine`. Its fields are the options of
    `[engines.NAME]`.
    """

    name: ClassVar[str]

    def connect(self, scope: EngineScope) -> ExecutionEngine:
        """Return an engine with these options. The method does not wait for the engine."""
