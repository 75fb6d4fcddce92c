"""The execution engines on which the contract suite runs, each with the real system behind it."""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from controller.engines.batch_systems.engine_types import SlurmEngineType
from controller.engines.containers.container_engine import ContainerEngineType
from controller.engines.contract import EngineScope, ExecutionEngine
from controller.engines.corral.corral_engine import CorralEngineType
from controller.engines.kubernetes.kube_options import KubernetesEngineType
from controller.engines.serverless.http_function import HttpFunctionType
from controller.engines.tags import prefix_of
from tests.agent import images
from tests.agent.agent_process import eventually
from tests.agent.dockerd import docker_daemon
from tests.clients import real_kubernetes
from tests.clients.real_kubernetes import RealKubernetes
from tests.clients.real_slurm import RealSlurm, missing
from tests.controller.engines.fake_engine import STORE
from tests.controller.engines.serverless.function_server import FunctionServer
from tests.controller.engines.serverless.object_server import BUCKET, KEY, ObjectServer
from tests.systems import System, system

EXAMPLES = Path(__file__).parents[3] / "examples"


class EngineSetup(ABC):
    """One engine for the contract suite. `begin` starts the system behind it, or skips the test."""

    image = ""
    """The image of jobs, for engines that need one."""
    merged_output = False
    """True if the engine gives stdout and stderr as one text."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scope = EngineScope("tried", prefix_of(STORE), str(directory), 30.0)

    async def begin(self) -> None:  # noqa: B027 - some systems need no start
        """Start the system behind the engine."""

    @abstractmethod
    def engine(self) -> ExecutionEngine:
        """Return a new engine on the system, as a restarted controller makes it."""

    async def end(self) -> None:  # noqa: B027 - some systems need no end
        """Stop the system behind the engine."""


def example_module(name: str) -> ModuleType:
    """Return the module of a file in examples/."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class ProcessSetup(EngineSetup):
    """The example engine, which runs real processes."""

    def engine(self) -> ExecutionEngine:
        made: ExecutionEngine = (
            example_module("process_engine").ProcessEngineType(4, 4_096).connect(self.scope)
        )
        return made


class DockerSetup(EngineSetup):
    """The container engine on a real dockerd."""

    image = images.IMAGE

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._stack = ExitStack()
        self._socket = ""

    async def begin(self) -> None:
        daemon = await asyncio.to_thread(self._stack.enter_context, docker_daemon())
        self._socket = str(daemon.place / "sock")

    def engine(self) -> ExecutionEngine:
        return ContainerEngineType(self._socket, pull="never").connect(self.scope)

    async def end(self) -> None:
        await asyncio.to_thread(self._stack.close)


class PodmanSetup(DockerSetup):
    """The container engine on the service of a real podman."""

    async def begin(self) -> None:
        self._socket = await asyncio.to_thread(self._stack.enter_context, podman_service())


@contextmanager
def podman_service() -> Iterator[str]:
    """Yield the socket of a running `podman system service` with the test image."""
    if os.geteuid() != 0:
        pytest.skip("containers with limits need root")
    with images.place() as place:
        command = images.podman(place)
        images.bring_image(command, place)
        settings = place / "containers.conf"
        settings.write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\nevents_logger = "file"\n'
        )
        service = subprocess.Popen(
            [*command, *images.MANAGER, "system", "service", "--time=0", f"unix://{place}/sock"],
            env={**os.environ, "CONTAINERS_CONF": str(settings)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually((place / "sock").exists)
            yield str(place / "sock")
        finally:
            service.terminate()
            service.wait(30)
            subprocess.run(
                [*command, *images.MANAGER, "rm", "--all", "--force"], capture_output=True, check=False
            )


class SlurmSetup(EngineSetup):
    """A real Slurm with two nodes, one for all tests of the process."""

    _slurm: RealSlurm | None = None

    async def begin(self) -> None:
        if missing():
            pytest.skip(missing())
        os.environ["SLURM_CONF"] = self._running().environment["SLURM_CONF"]

    @classmethod
    def _running(cls) -> RealSlurm:
        if SlurmSetup._slurm is None:
            place = Path(tempfile.mkdtemp(prefix="corral-slurm-"))
            SlurmSetup._slurm = made = RealSlurm(place)
            atexit.register(lambda: (made.end(), shutil.rmtree(place, ignore_errors=True)))
            made.start()
        return SlurmSetup._slurm

    def engine(self) -> ExecutionEngine:
        return SlurmEngineType(partitions=("gpu",), records=f"{self.directory}/records").connect(self.scope)

    async def end(self) -> None:
        """Wait until Slurm has no job, because the next test uses the same tags."""
        while self._slurm is not None and self._slurm.run("squeue", "-h").stdout:
            await asyncio.sleep(0.1)
        os.environ.pop("SLURM_CONF", None)


class KubernetesSetup(EngineSetup):
    """A real Kubernetes with one node, one for all tests of the process. The engine has only the rights in
    deploy/kubernetes.
    """

    image = "tools"
    merged_output = True
    _cluster: RealKubernetes | None = None

    async def begin(self) -> None:
        if real_kubernetes.missing():
            pytest.skip(real_kubernetes.missing())
        await asyncio.to_thread(self._running)

    @classmethod
    def _running(cls) -> RealKubernetes:
        if KubernetesSetup._cluster is None:
            place = Path(tempfile.mkdtemp(prefix="corral-kube-"))
            KubernetesSetup._cluster = made = RealKubernetes(place)
            atexit.register(lambda: (made.end(), shutil.rmtree(place, ignore_errors=True)))
            made.start()
            made.add_node("n1")
        return KubernetesSetup._cluster

    def engine(self) -> ExecutionEngine:
        account = str(self._running().account_kubeconfig())
        return KubernetesEngineType(account, run_as="65534:65534").connect(self.scope)

    async def end(self) -> None:
        """Wait until there is no Pod, because the next test uses the same tags."""
        while self._cluster is not None and await asyncio.to_thread(self._cluster.pods):
            await asyncio.sleep(0.1)


class CorralSetup(EngineSetup):
    """Another Corral: a real controller with a real agent, whose jobs are real processes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._stack = ExitStack()
        self._other: System | None = None

    async def begin(self) -> None:
        self._other = self._stack.enter_context(system("gpu01"))
        await asyncio.to_thread(self._other.start)

    def engine(self) -> ExecutionEngine:
        assert self._other is not None
        return CorralEngineType(f"unix://{self._other.socket}").connect(self.scope)

    async def end(self) -> None:
        await asyncio.to_thread(self._stack.close)


class HttpFunctionSetup(EngineSetup):
    """Corral's handler in an HTTP server, with a storage in memory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._storage, self._function = ObjectServer(), FunctionServer()
        self._patch = pytest.MonkeyPatch()

    async def begin(self) -> None:
        self._patch.setenv("AWS_ACCESS_KEY_ID", KEY.key_id)
        self._patch.setenv("AWS_SECRET_ACCESS_KEY", KEY.secret)
        self._patch.setenv("CORRAL_PLATFORM_CHECKS_CALLERS", "yes")
        await self._storage.start()
        await self._function.start()

    def engine(self) -> ExecutionEngine:
        return HttpFunctionType(
            bucket=BUCKET,
            users=("*",),
            storage_endpoint=self._storage.address,
            url=self._function.address,
            poll_s=0.2,
        ).connect(self.scope)

    async def end(self) -> None:
        for each in self._storage.keys("claims/"):
            stop = each.replace("claims", "jobs") + "/stop"
            self._storage.objects[stop] = b'{"grace_s": 0}', 0.0
        await self._function.idle()
        await self._function.stop()
        await self._storage.stop()
        self._patch.undo()


ENGINE_SETUPS: dict[str, type[EngineSetup]] = {
    "process": ProcessSetup,
    "corral": CorralSetup,
    "docker": DockerSetup,
    "kubernetes": KubernetesSetup,
    "podman": PodmanSetup,
    "http-function": HttpFunctionSetup,
    "slurm": SlurmSetup,
}
"""The engines that run real jobs. The traps are played on the fake engine, whose answers a test scripts."""
