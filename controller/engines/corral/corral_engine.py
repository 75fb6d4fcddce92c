"""Runs jobs on another Corral: submits them through its HTTP API, and shows its nodes as nodes of this
cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineScope,
    EngineUnavailable,
    ExecutionEngine,
    ForeignNode,
    Outcome,
    Seen,
    Task,
)
from controller.engines.corral.forwarded_jobs import (
    CLUSTER_LABEL,
    COLUMNS,
    ForwardedJob,
    jobs_of,
    outcome_of,
    spec_of,
)
from controller.engines.corral.other_controller import OtherController
from wire.agent.reports import GpuFacts, NodeFacts
from wire.api.job_table import JobTable
from wire.api.nodes import NodeView
from wire.codec import dumps, encode
from wire.http.client import Client, Refused
from wire.job.placement.affinity import Effect
from wire.job.spec import JobSpec
from wire.names import ENGINE_LABEL, NodeState

T = TypeVar("T")
KEEP_SHOWING_S = 60
"""Seconds for which look() still shows a job after its end. The end of a job that ended earlier is read by
proof().
"""
FOLLOW_PAUSE_S = 1.0
"""Seconds between two tries to read the log of a job that has not started."""
_NOT_NOW = frozenset(("never_fits", "over_quota", "not_allowed", "busy", "node_away", "storage_full"))
"""The codes of refusals after which the same job may be accepted later. The codes of other refusals say that
the request itself is wrong.
"""
_NO_JOBS = (Effect.NO_SCHEDULE.value, Effect.NO_EXECUTE.value)


@dataclass(frozen=True, slots=True)
class CorralEngineType:
    """The options of the engine.

    - `url` is the address of the other controller, as for `corral --url`: unix:///PATH, ssh://[USER@]HOST,
      https://HOST or http://HOST:PORT. `token_file` has the token for HTTP, and `ca` the certificates of a
      private authority for HTTPS.
    - In the other cluster, a job runs as the user with the same name, or, with `run_as`, as that user.
      Without `run_as`, the account of this controller in the other cluster must be an operator.
    - `queue` and `project` are those of the job in the other cluster. If `project` is empty, the job has the
      same project as here.
    - `preemptible` says whether the other cluster may preempt the jobs.
    """

    name: ClassVar[str] = "corral"

    url: str
    token_file: str = ""
    ca: str = ""
    run_as: str = ""
    queue: str = "default"
    project: str = ""
    preemptible: bool = True

    def connect(self, scope: EngineScope) -> CorralEngine:
        return CorralEngine(self, scope)


class CorralEngine(ExecutionEngine):
    """Forwards jobs to another controller. The name of a foreign job is its id there.

    1. look() makes two requests, whatever the number of jobs: for the nodes, and for the jobs with the label
       of this cluster. Nodes that belong to an execution engine of the other cluster are left out, so a job
       is forwarded once and never in a circle.
    2. ask() submits the job with the tag as idempotency key, so the other controller queues it only once. The
       job gets the labels of the chosen node as selector: the other scheduler may choose any node with these
       labels.
    3. end() cancels a job after it has read the job's tag, because an id may belong to another job if the
       other controller has lost its store.
    4. proof() reads one job. If the other cluster has preempted it, or has queued it again, proof() cancels
       it there, so that the job runs again where this controller decides.

    Invariant: in the other cluster, only jobs with the label of this cluster are changed.

    Cost: two requests for each look, two to four for each job.
    """

    caps = EngineCaps(
        supports=frozenset(
            ("image", "mounts", "output", "error", "health", "warn_signal", "scratch_mib", "tasks")
        ),
        logs=True,
        walltime=True,
    )

    def __init__(self, options: CorralEngineType, scope: EngineScope) -> None:
        self._options, self._prefix = options, scope.tag_prefix
        self._other = OtherController(options.url, options.token_file, options.ca, scope.timeout_s)
        self._nodes: dict[str, NodeView] = {}
        self._since: int | None = None
        """The next look requests the jobs that ended after this time (by the other controller's clock): the
        time of the last look minus KEEP_SHOWING_S. None before the first look.
        """
        self._caller = ""
        self._forgotten: set[str] = set()

    async def look(self) -> Seen:
        nodes, table = await self._ask(self._look)
        self._nodes = {each.name: each for each in nodes if ENGINE_LABEL not in each.labels}
        self._since = max(0, int(table.now) - KEEP_SHOWING_S)
        jobs = [each for each in jobs_of(table) if str(each.id) not in self._forgotten]
        return Seen(
            not table.more,
            tuple(each.foreign for each in jobs),
            tuple(map(_foreign_node, self._nodes.values())),
        )

    def _look(self, client: Client) -> tuple[tuple[NodeView, ...], JobTable]:
        if not self._caller:
            self._caller = client.health().user
        labels = {CLUSTER_LABEL: self._prefix}
        # Request the nodes first. A node that is added between the two requests only appears one look later.
        return client.nodes().nodes, client.job_table(COLUMNS, labels=labels, since=self._since)

    async def ask(self, task: Task, tag: str, *, again: bool) -> str:
        if task.node not in self._nodes:
            await self.look()
        node = self._nodes.get(task.node)
        if node is None:
            raise AskRefused(f"the other cluster has no node {task.node}")
        if again:
            # Search for the tag. The idempotency key alone may not find the job, because keys are per user,
            # and the option run_as may have changed since the first submit.
            found = [each for each in (await self.look()).jobs if each.tag == tag]
            if found:
                return found[0].ref
        spec = self._spec(task, tag)
        user = self._options.run_as or task.order.user
        try:
            done = await self._other.call(lambda client: client.submit(spec, key=tag, as_user=user))
        except Refused as refused:
            problem = refused.problem
            if refused.status >= 500 and problem.code not in _NOT_NOW:
                raise EngineUnavailable(f"{self._other.url}: {problem.message}") from None
            hint = f" {problem.hint}" if problem.hint else ""
            where = f"{problem.where}: " if problem.where else ""
            raise AskRefused(
                f"the other cluster refuses the job: {where}{problem.message}.{hint}",
                lasting=problem.code not in _NOT_NOW,
            ) from None
        return str(done.ids[0])

    async def end(self, ref: str, grace_s: float) -> None:
        await self._ask(lambda client: self._cancel(client, ref))

    def _cancel(self, client: Client, ref: str, tag: str = "") -> None:
        """Cancel a forwarded job. Do nothing if the job has ended, does not exist, or has another tag.
        Without `tag`, every tag of this cluster counts.
        """
        job = self._read(client, ref)
        if job is None or job.state.terminal or not job.tag.startswith(tag or self._prefix):
            return
        try:
            client.cancel(ref)
        except Refused as refused:
            if refused.problem.code not in ("conflict", "not_found"):
                raise

    async def proof(self, ref: str, tag: str) -> Outcome | None:
        if ref in self._forgotten:
            return None
        job = await self._ask(lambda client: self._prove(client, ref, tag))
        return None if job is None or job.tag != tag else outcome_of(job, self._caller)

    def _prove(self, client: Client, ref: str, tag: str) -> ForwardedJob | None:
        if not self._caller:
            self._caller = client.health().user
        job = self._read(client, ref)
        if job is not None and job.tag == tag and job.queued_again and not job.state.terminal:
            self._cancel(client, ref, tag)
            job = self._read(client, ref)
        return job

    def _read(self, client: Client, ref: str) -> ForwardedJob | None:
        """Return the job with this id; None if the other cluster does not have it (any more)."""
        return next(iter(jobs_of(client.job_table(COLUMNS, jobs=(ref,)))), None)

    async def forget(self, ref: str, tag: str) -> None:
        # Only hide the job in further looks. The other controller deletes ended jobs itself, by its
        # [retention].
        self._forgotten.add(ref)

    async def logs(self, ref: str, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        while True:
            try:
                pieces = self._other.pieces(lambda client: client.logs(ref, stream=stream, follow=follow))
                async for piece in pieces:
                    yield piece
                return
            except Refused as refused:
                if refused.problem.code not in ("conflict", "not_found"):
                    raise EngineUnavailable(f"{self._other.url}: {refused.problem.message}") from None
            # The job has not started there, or the other cluster no longer has it. Read it to find out which.
            job = await self._ask(lambda client: self._read(client, ref))
            if not follow or job is None or job.state.terminal:
                return
            await asyncio.sleep(FOLLOW_PAUSE_S)

    def script(self, task: Task, tag: str) -> str:
        return dumps(encode(self._spec(task, tag)))

    async def close(self) -> None:
        self._other.close()

    def _spec(self, task: Task, tag: str) -> JobSpec:
        node, options = self._nodes.get(task.node), self._options
        held = {each.uuid for each in task.order.gpus}
        models = {each.model for each in (node.gpus if node else ()) if each.uuid in held}
        return spec_of(
            task.order,
            tag,
            self._prefix,
            selector=dict(node.labels) if node else {},
            gpu_models=tuple(sorted(models)),
            queue=options.queue,
            project=options.project,
            preemptible=options.preemptible,
        )

    async def _ask(self, work: Callable[[Client], T]) -> T:
        """Return the result of `work`, which sends requests to the other controller. If it refuses a request,
        raise EngineUnavailable too.
        """
        try:
            return await self._other.call(work)
        except Refused as refused:
            hint = f". {refused.problem.hint}" if refused.problem.hint else ""
            raise EngineUnavailable(f"{self._other.url}: {refused.problem.message}{hint}") from None


def _foreign_node(node: NodeView) -> ForeignNode:
    """Return a node of the other cluster as a node of this cluster: its whole capacity, also the part that
    other users hold there. MIG instances are left out, because a job could not name their size there.
    """
    gpus = tuple(
        GpuFacts(index, each.uuid, each.model, each.memory_mib, each.numa)
        for index, each in enumerate(each for each in node.gpus if not each.mig)
    )
    facts = NodeFacts(
        node.cpu_milli,
        node.memory_mib,
        gpus,
        max(1, node.numa_nodes),
        dict(node.labels),
        storage_mib=node.scratch_mib,
        driver=node.driver,
        cuda=node.cuda,
        numa=node.numa,
    )
    why = ""
    if node.state in (NodeState.DRAINED, NodeState.DOWN):
        why = f"{node.state_word} in the other cluster" + (f": {node.why}" if node.why else "")
    elif any(taint.endswith(_NO_JOBS) for taint in node.taints):
        why = f"tainted in the other cluster: {', '.join(node.taints)}"
    elif node.drain is not None:
        why = "to be empty at a given time in the other cluster"
    return ForeignNode(node.name, facts, available=not why, why=why)
