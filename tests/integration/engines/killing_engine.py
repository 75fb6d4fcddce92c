"""Engines that kill their controller once, at a chosen step. Tests name this file as a plugin file."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from controller.engines.batch_systems.engine_types import SlurmEngineType
from controller.engines.contract import (
    EngineScope,
    ExecutionEngine,
    ForeignQuota,
    Offer,
    Outcome,
    Ref,
    Seen,
    Task,
)
from controller.engines.kubernetes.kube_options import KubernetesEngineType
from controller.engines.pools.machine_pool import MachineList, MachineShape, MachineState
from controller.engines.pools.slurm_pilots.pilot_pool import SlurmPilotType
from controller.engines.serverless.http_function import HttpFunctionType
from controller.engines.serverless.lambda_function import LambdaType

STEPS = (
    "before ask",
    "after ask",
    "after the first look that shows the job",
    "after the first look that shows the job running",
    "after the first look that shows the end",
    "before proof",
    "after proof",
    "before forget",
    "after forget",
)
SEND_STEP = "before the event"
END_STEPS = ("before end", "after end")


class KillingEngine(ExecutionEngine):
    """Passes all calls to another engine, and kills this process at the step `step` if the file `once`
    does not exist yet.
    """

    def __init__(self, inner: ExecutionEngine, step: str, once: Path) -> None:
        self.caps = inner.caps  # type: ignore[misc]
        self._inner = inner
        self._step = step
        self._once = once

    def _reach(self, step: str) -> None:
        if step == self._step and not self._once.exists():
            self._once.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    async def look(self) -> Seen:
        seen = await self._inner.look()
        for each in seen.jobs:
            self._reach("after the first look that shows the job")
            if each.state.value == "running":
                self._reach("after the first look that shows the job running")
            if each.state.value == "ended":
                self._reach("after the first look that shows the end")
        return seen

    async def ask(self, task: Task, tag: str, *, again: bool) -> Ref:
        self._reach("before ask")
        ref = await self._inner.ask(task, tag, again=again)
        self._reach("after ask")
        return ref

    async def end(self, ref: Ref, grace_s: float) -> None:
        self._reach("before end")
        await self._inner.end(ref, grace_s)
        self._reach("after end")

    async def proof(self, ref: Ref, tag: str) -> Outcome | None:
        self._reach("before proof")
        outcome = await self._inner.proof(ref, tag)
        if outcome is not None:
            self._reach("after proof")
        return outcome

    async def forget(self, ref: Ref, tag: str) -> None:
        self._reach("before forget")
        await self._inner.forget(ref, tag)
        self._reach("after forget")

    async def quota(self, name: str) -> ForeignQuota:
        return await self._inner.quota(name)

    async def close(self) -> None:
        await self._inner.close()

    def script(self, task: Task, tag: str) -> str:
        return self._inner.script(task, tag)

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        async for piece in self._inner.logs(ref, stream, follow=follow):
            yield piece


@dataclass(frozen=True, slots=True)
class KillingSlurm:
    """`step` is the step at which the controller is killed, once; an empty step kills no controller."""

    name: ClassVar[str] = "killing-slurm"

    records: str = ""
    step: str = ""
    once: str = ""
    qos: str = ""

    def connect(self, scope: EngineScope) -> Any:
        kind = SlurmEngineType(partitions=("gpu",), records=self.records, qos=self.qos)
        return KillingEngine(kind.connect(scope), self.step, Path(self.once))


PILOT_STEPS = (
    "before create",
    "after create",
    "after the first look that shows the pilot",
    "after the first look that shows the pilot running",
    "before the connection",
    "after the connection",
    "before the cancel",
    "after the cancel",
    "after the first look that shows the end",
)


@dataclass(frozen=True, slots=True)
class KillingPilots:
    """Pilots of Slurm, with a kill of the controller at one of PILOT_STEPS. `options` are the options of the
    pool as JSON.
    """

    name: ClassVar[str] = "killing-pilots"

    options: str = ""
    step: str = ""
    once: str = ""

    def configured_offers(self) -> tuple[Offer, ...]:
        return self._kind().configured_offers()

    @property
    def most(self) -> int:
        return self._kind().most

    def _kind(self) -> SlurmPilotType:
        options = json.loads(self.options)
        shapes = tuple(MachineShape(**each) for each in options.pop("shapes"))
        return SlurmPilotType(shapes=shapes, **options)

    def connect(self, scope: EngineScope) -> Any:
        made = self._kind().connect(scope)
        pool, once = made.pool, Path(self.once)

        def reach(step: str) -> None:
            if step == self.step and not once.exists():
                once.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def killing(method: Any, before: str, after: str) -> Any:
            async def call(*words: Any) -> Any:
                reach(before)
                answer = await method(*words)
                reach(after)
                return answer

            return call

        list_machines = pool.machines

        async def machines() -> MachineList:
            found = await list_machines()
            for each in found.machines:
                reach("after the first look that shows the pilot")
                if each.state is MachineState.RUNNING:
                    reach("after the first look that shows the pilot running")
                if each.state is MachineState.ENDED:
                    reach("after the first look that shows the end")
            return found

        pool.machines = machines  # type: ignore[method-assign]
        pool.create = killing(pool.create, "before create", "after create")  # type: ignore[method-assign]
        pool.end = killing(pool.end, "before the cancel", "after the cancel")  # type: ignore[method-assign]
        pool.open_agent = killing(  # type: ignore[method-assign]
            pool.open_agent, "before the connection", "after the connection"
        )
        return made


@dataclass(frozen=True, slots=True)
class KillingKubernetes:
    """Like KillingSlurm, for the engine of Kubernetes with these options."""

    name: ClassVar[str] = "killing-kubernetes"

    kubeconfig: str = ""
    place: str = "node"
    step: str = ""
    once: str = ""

    def connect(self, scope: EngineScope) -> Any:
        kind = KubernetesEngineType(self.kubeconfig, place=self.place, image="tools", run_as="65534:65534")
        return KillingEngine(kind.connect(scope), self.step, Path(self.once))


@dataclass(frozen=True, slots=True)
class KillingFunction:
    """An engine on a function. `options` are its options as JSON. With the step SEND_STEP the controller is
    killed after the object `asked` is written and before the event is sent.
    """

    name: ClassVar[str] = "killing-function"

    options: str = ""
    step: str = ""
    once: str = ""

    def connect(self, scope: EngineScope) -> Any:
        options = json.loads(self.options)
        options["users"] = tuple(options["users"])
        kind = LambdaType if "function" in options else HttpFunctionType
        inner = kind(**options).connect(scope)
        made = KillingEngine(inner, self.step, Path(self.once))
        send = inner._invoker.invoke

        async def invoke(payload: bytes, tag: str) -> None:
            made._reach(SEND_STEP)
            await send(payload, tag)

        inner._invoker.invoke = invoke  # type: ignore[method-assign]
        return made
