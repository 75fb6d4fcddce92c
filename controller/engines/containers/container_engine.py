"""Runs jobs in containers of Docker or Podman, through the daemon's socket."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from controller.engines.containers.container_request import (
    CLUSTER_LABEL,
    MERGED_LABEL,
    TAG_LABEL,
    ContainerRules,
    RequestProblem,
    container_request,
    request_text,
)
from controller.engines.containers.docker_api import ApiRefusal, DockerApi
from controller.engines.containers.mount_sources import reachable_source
from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineScope,
    EngineUnavailable,
    ExecutionEngine,
    ForeignJob,
    ForeignNode,
    ForeignState,
    Outcome,
    Ref,
    Seen,
    Task,
)
from wire.agent.reports import GpuFacts, NodeFacts

_STATES = {
    "created": ForeignState.WAITING,
    "configured": ForeignState.WAITING,
    "initialized": ForeignState.WAITING,
    "exited": ForeignState.ENDED,
    "stopped": ForeignState.ENDED,
    "dead": ForeignState.ENDED,
}
"""The states of containers that do not run. Any other state, such as running or paused, counts as running."""
_UNSTARTED = ("created", "configured", "initialized")
"""The states of a container that was created and never started."""
_MOST_SIGNALS = 64
PULL_S = 1_800.0
"""The pull of an image fails after this many seconds."""


@dataclass(frozen=True, slots=True)
class ContainerGpu:
    """A GPU that containers of this engine may use: its UUID, model, memory and device files."""

    uuid: str
    model: str = "GPU"
    memory_mib: int = 0
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerEngineType:
    """The options of `[engines.NAME]` for a container daemon.

    `pull` says whether a missing image is pulled: "missing" or "never". `gpu_devices` says how containers get
    GPUs: "nvidia" by the NVIDIA runtime of Docker, "files" by the device files of each GPU.
    """

    name: ClassVar[str] = "docker"

    socket: str = "/var/run/docker.sock"
    image: str = ""
    pull: str = "missing"
    network: str = "host"
    init: bool = True
    cpus: int = 0
    memory_mib: int = 0
    max_processes: int = 16_384
    mount_roots: tuple[str, ...] = ()
    gpus: tuple[ContainerGpu, ...] = ()
    gpu_devices: str = "nvidia"

    def __post_init__(self) -> None:
        if not self.socket.startswith("/"):
            raise ValueError(f"socket: {self.socket!r} is not an absolute path")
        if self.pull not in ("never", "missing"):
            raise ValueError(f'pull: {self.pull!r} is not "never" or "missing"')
        if self.gpu_devices not in ("nvidia", "files"):
            raise ValueError(f'gpu_devices: {self.gpu_devices!r} is not "nvidia" or "files"')
        if any(not root.startswith("/") for root in self.mount_roots):
            raise ValueError("mount_roots: write absolute paths")

    def connect(self, scope: EngineScope) -> ExecutionEngine:
        """Return the engine. It connects to the daemon with its first request."""
        return ContainerEngine(self, scope)

    @property
    def rules(self) -> ContainerRules:
        files = {gpu.uuid: gpu.devices for gpu in self.gpus} if self.gpu_devices == "files" else None
        return ContainerRules(
            self.image, self.network, self.init, self.max_processes, self.mount_roots, files
        )


@dataclass(slots=True)
class ContainerEngine(ExecutionEngine):
    """Runs each attempt in one container. The name of the container is the tag of the attempt, such as
    corral-0f3a9c112233-42-1-0.

    1. ask() creates the container, and starts it if it was never started. The daemon refuses a second
       container of the same name, so a repeated ask() finds the first one. A container that has ended
       is not started again.
    2. end() sends SIGTERM at its first call. If it is called again when the grace time is over, it sends
       SIGKILL.
    3. The daemon keeps an ended container with its exit code and output until forget() removes it. So proof()
       can show the end even if the daemon or the controller was down in the meantime.
    """

    caps: ClassVar[EngineCaps] = EngineCaps(logs=True, supports=frozenset({"image", "mounts"}))

    options: ContainerEngineType
    scope: EngineScope
    _api: DockerApi = field(init=False)
    _kill_at: dict[Ref, float] = field(default_factory=dict)
    """When SIGKILL is due, for each container that SIGTERM was sent to."""
    _pulls: dict[str, asyncio.Task[str]] = field(default_factory=dict)
    """The tasks that pull images, by image. A task stays here after its end if the image could not be pulled;
    its result is then the reason.
    """

    def __post_init__(self) -> None:
        self._api = DockerApi(self.options.socket, self.scope.timeout_s)

    async def look(self) -> Seen:
        query = {"all": "1", "filters": _label_filter(self.scope.tag_prefix)}
        try:
            listed = await self._api.call("GET", "/containers/json", query)
            info = await self._api.call("GET", "/info")
        except ApiRefusal as refusal:
            raise EngineUnavailable(f"the container daemon refuses: {refusal.message}") from None
        jobs = tuple(
            ForeignJob(
                each["Labels"][TAG_LABEL], each["Id"], _STATES.get(each["State"], ForeignState.RUNNING)
            )
            for each in listed or ()
            if TAG_LABEL in (each.get("Labels") or {})
        )
        return Seen(True, jobs, (self._node(info),))

    async def ask(self, task: Task, tag: str, *, again: bool) -> Ref:
        # Look up user names and paths in a thread, because their servers (LDAP, NFS) may not answer.
        body = await asyncio.to_thread(self._request, task, tag)
        there = await self._inspect(tag) if again else None
        if there is None:
            there = await self._create(tag, body)
        if there["State"]["Status"] in _UNSTARTED:
            await self._begin(there["Id"])
        return str(there["Id"])

    async def end(self, ref: Ref, grace_s: float) -> None:
        now = time.monotonic()
        kill_at = self._kill_at.get(ref)
        number = "SIGTERM" if kill_at is None or now < kill_at else "SIGKILL"
        self._kill_at[ref] = now + grace_s if kill_at is None else min(kill_at, now + grace_s)
        try:
            await self._api.call("POST", f"/containers/{ref}/kill", {"signal": number})
        except ApiRefusal as refusal:
            # Ignore these refusals: 404 means that the container is gone; 409, or 500 from Podman, that it
            # does not run.
            if refusal.status not in (404, 409, 500):
                raise EngineUnavailable(refusal.message) from None
            found = await self._inspect(ref)
            if found is not None and found["State"]["Status"] in _UNSTARTED:
                # Remove a container that was never started, because it cannot be killed and never ends.
                await self._remove(ref)

    async def proof(self, ref: Ref, tag: str) -> Outcome | None:
        found = await self._inspect(ref)
        if found is None or found["Config"]["Labels"].get(TAG_LABEL) != tag:
            return None
        state = found["State"]
        if _STATES.get(state["Status"]) is not ForeignState.ENDED:
            return None
        code = int(state["ExitCode"])
        if state.get("OOMKilled"):
            limit = found["HostConfig"].get("Memory", 0) >> 20
            return Outcome(signal=9, why=f"out_of_memory: it used more than {limit} MiB")
        # Take a code above the numbers of signals as it is. Docker gives 255 to a container whose exit code
        # was lost when the daemon was killed.
        return Outcome(signal=code - 128) if 128 < code <= 128 + _MOST_SIGNALS else Outcome(code=code)

    async def forget(self, ref: Ref, tag: str) -> None:
        self._kill_at.pop(ref, None)
        await self._remove(ref)

    async def _remove(self, ref: Ref) -> None:
        try:
            await self._api.call("DELETE", f"/containers/{ref}", {"v": "1"})
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise EngineUnavailable(refusal.message) from None

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        found = await self._inspect(ref)
        if found is None:
            raise EngineUnavailable("the container and its output are gone")
        merged = found["Config"]["Labels"].get(MERGED_LABEL) == "1"
        wanted = {stream, "stderr"} if merged and stream == "stdout" else {stream}
        if merged and stream == "stderr":
            return
        query = {each: str(int(each in wanted)) for each in ("stdout", "stderr")}
        async for piece in self._api.output(f"/containers/{ref}/logs", {**query, "follow": str(int(follow))}):
            yield piece

    def script(self, task: Task, tag: str) -> str:
        rules, order = self.options.rules, task.order
        return request_text(container_request(order, tag, self.scope.tag_prefix, order.user, (), rules))

    async def close(self) -> None:
        for task in self._pulls.values():
            task.cancel()
        await self._api.close()

    def _request(self, task: Task, tag: str) -> dict[str, Any]:
        order = task.order
        try:
            user = pwd.getpwnam(order.user)
        except KeyError:
            raise AskRefused(f"the controller's machine has no user {order.user!r}", lasting=True) from None
        groups = [each for each in os.getgrouplist(user.pw_name, user.pw_gid) if each != user.pw_gid]
        name = f"{user.pw_uid}:{user.pw_gid}"
        rules = self.options.rules
        try:
            body = container_request(order, tag, self.scope.tag_prefix, name, groups, rules)
            for mount in body["HostConfig"]["Mounts"]:
                mount["Source"] = reachable_source(
                    mount["Source"], rules.mount_roots, user.pw_uid, (user.pw_gid, *groups)
                )
            return body
        except RequestProblem as problem:
            raise AskRefused(str(problem), lasting=True) from None

    async def _inspect(self, name: str) -> Any:
        """Return the daemon's description of the container with this name or id; None if there is no such
        container.
        """
        try:
            return await self._api.call("GET", f"/containers/{name}/json")
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise EngineUnavailable(refusal.message) from None

    async def _create(self, tag: str, body: Mapping[str, Any]) -> Any:
        """Create the container with the name `tag`, and return the daemon's description of it. If the
        container exists already, return its description.
        """
        try:
            await self._api.call("POST", "/containers/create", {"name": tag}, body)
        except ApiRefusal as refusal:
            there = await self._inspect(tag)
            if there is not None and there["Config"]["Labels"].get(TAG_LABEL) == tag:
                return there
            if refusal.status == 404:
                self._pull(body["Image"])
            raise _refused(refusal) from None
        return await self._inspect(tag)

    async def _begin(self, ref: Ref) -> None:
        try:
            await self._api.call("POST", f"/containers/{ref}/start")
        except ApiRefusal as refusal:
            # Remove the container, so that a repeated ask() does not find a container that cannot start.
            await self.forget(ref, "")
            raise _refused(refusal) from None

    def _pull(self, image: str) -> None:
        """Begin to pull an image, if that has not begun, and always raise AskRefused. The refusal is lasting
        if the image cannot or must not be pulled; otherwise the job is asked for again.
        """
        if self.options.pull == "never":
            raise AskRefused(f'the image {image} is missing, and pull = "never"', lasting=True)
        task = self._pulls.get(image)
        if task is None:
            self._pulls[image] = asyncio.get_running_loop().create_task(self._pulled(image))
        elif task.done():
            del self._pulls[image]
            raise AskRefused(f"the image {image} cannot be pulled: {task.result()}", lasting=True)
        raise AskRefused(f"the image {image} is being pulled")

    async def _pulled(self, image: str) -> str:
        """Pull an image. Return the reason if this fails; "" if it succeeds."""
        name, _, version = image.rpartition(":")
        query = {"fromImage": image, "tag": "" if name and "/" not in version else "latest"}
        try:
            told = await self._api.call("POST", "/images/create", query, timeout_s=PULL_S)
        except (ApiRefusal, EngineUnavailable) as error:
            return str(error)
        why = str(told.get("error") or "") if isinstance(told, dict) else ""
        if not why:
            del self._pulls[image]
        return why

    def _node(self, info: Mapping[str, Any]) -> ForeignNode:
        options = self.options
        gpus = tuple(
            GpuFacts(index, gpu.uuid, gpu.model, gpu.memory_mib) for index, gpu in enumerate(options.gpus)
        )
        facts = NodeFacts(
            cpu_milli=1_000 * (options.cpus or int(info["NCPU"])),
            memory_mib=options.memory_mib or int(info["MemTotal"]) >> 20,
            gpus=gpus,
            runtime=f"containers {info.get('ServerVersion', '')}".strip(),
        )
        return ForeignNode(str(info.get("Name") or "daemon"), facts)


def _label_filter(prefix: str) -> str:
    return json.dumps({"label": [f"{CLUSTER_LABEL}={prefix}"]})


def _refused(refusal: ApiRefusal) -> AskRefused:
    """Return the daemon's refusal as AskRefused. It is lasting, unless the status is 500 or more and the
    message does not say that a file, such as the program, is missing.
    """
    lacking = "not found" in refusal.message or "no such file" in refusal.message
    return AskRefused(refusal.message, lasting=refusal.status < 500 or lacking)
