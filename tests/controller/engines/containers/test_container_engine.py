"""The container engine on a real dockerd: limits, devices, missing images, and a daemon that is killed."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engines.containers.container_engine import ContainerEngine, ContainerEngineType, ContainerGpu
from controller.engines.contract import (
    AskRefused,
    EngineScope,
    EngineUnavailable,
    ExecutionEngine,
    ForeignState,
    Outcome,
    Task,
)
from controller.engines.tags import Tag, prefix_of
from tests.agent.dockerd import DockerDaemon, docker_daemon
from tests.agent.images import IMAGE
from tests.controller.engines.fake_engine import STORE
from wire.agent.orders import GpuHold, Start

PATIENCE_S = 120.0


@pytest.fixture
async def daemon() -> AsyncIterator[DockerDaemon]:
    made = docker_daemon()
    yield await asyncio.to_thread(made.__enter__)
    await asyncio.to_thread(made.__exit__, None, None, None)


def engine_on(daemon: DockerDaemon, **options: object) -> ExecutionEngine:
    scope = EngineScope("docker", prefix_of(STORE), str(daemon.place))
    made = ContainerEngineType(str(daemon.place / "sock"), pull="never")
    return replace(made, **options).connect(scope)  # type: ignore[arg-type]


def task(job: int, *command: str, **more: object) -> Task:
    order = Start(job, 1, command, getpass.getuser(), 1_000, 64, image=IMAGE)
    return Task("node", replace(order, **more))  # type: ignore[arg-type]


def tag(job: int) -> str:
    return str(Tag(STORE[:12], job, 1, 0))


async def proof(engine: ExecutionEngine, ref: str, job: int) -> Outcome:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await engine.proof(ref, tag(job))
            if found is not None:
                return found
            await asyncio.sleep(0.1)


async def test_too_much_memory_is_out_of_memory(daemon: DockerDaemon) -> None:
    engine = engine_on(daemon)
    grow = "x=1; while :; do x=$x$x; done"
    ref = await engine.ask(task(1, "sh", "-c", grow, memory_mib=32), tag(1), again=False)
    outcome = await proof(engine, ref, 1)
    assert outcome.why == "out_of_memory: it used more than 32 MiB"
    await engine.close()


@pytest.mark.parametrize(
    ("command", "outcome"), [("exit 255", Outcome(code=255)), ("kill -9 $$", Outcome(signal=9))]
)
async def test_only_the_numbers_of_signals_are_signals(
    daemon: DockerDaemon, command: str, outcome: Outcome
) -> None:
    engine = engine_on(daemon)
    ref = await engine.ask(task(1, "sh", "-c", command), tag(1), again=False)
    assert await proof(engine, ref, 1) == outcome
    await engine.close()


async def test_a_container_that_was_never_started_is_ended(daemon: DockerDaemon) -> None:
    """The daemon was killed after it had created the container."""
    engine = engine_on(daemon)
    assert isinstance(engine, ContainerEngine)
    body = await asyncio.to_thread(engine._request, task(1, "sleep", "1000"), tag(1))
    made = await engine._create(tag(1), body)
    [found] = (await engine.look()).jobs
    assert (found.ref, found.state) == (made["Id"], ForeignState.WAITING)
    await engine.end(found.ref, 1.0)
    assert (await engine.look()).jobs == ()
    await engine.end(found.ref, 1.0)
    await engine.close()


async def test_the_first_signal_is_sigterm_also_without_a_grace_time(
    daemon: DockerDaemon, tmp_path: Path
) -> None:
    engine = engine_on(daemon, mount_roots=(str(tmp_path),))
    trap = f"trap 'echo caught > {tmp_path}/caught' TERM; touch {tmp_path}/ready; while :; do sleep 0.1; done"
    os.chmod(tmp_path, 0o777)
    made = task(1, "sh", "-c", trap, mounts=(str(tmp_path),))
    ref = await engine.ask(made, tag(1), again=False)
    await there(tmp_path / "ready")
    await engine.end(ref, 0.0)
    await there(tmp_path / "caught")
    assert await engine.proof(ref, tag(1)) is None
    await engine.end(ref, 0.0)
    assert (await proof(engine, ref, 1)).signal == signal.SIGKILL
    await engine.close()


async def there(path: Path) -> None:
    """Wait until the file exists."""
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists():
            await asyncio.sleep(0.05)


async def test_an_end_while_the_daemon_is_down_is_proven_later(daemon: DockerDaemon, tmp_path: Path) -> None:
    engine = engine_on(daemon, mount_roots=(str(tmp_path),))
    os.mkfifo(tmp_path / "gate")
    wait = task(1, "sh", "-c", f"read -r _ < {tmp_path}/gate; exit 6", mounts=(str(tmp_path),))
    ref = await engine.ask(wait, tag(1), again=False)
    await asyncio.to_thread(daemon.kill)
    with pytest.raises(EngineUnavailable, match="no answer from the container daemon"):
        await engine.look()
    with pytest.raises(EngineUnavailable):
        await engine.proof(ref, tag(1))
    await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
    await asyncio.to_thread(daemon.start)
    assert (await proof(engine, ref, 1)).code == 6
    await engine.close()


async def test_a_device_file_is_passed(daemon: DockerDaemon, tmp_path: Path) -> None:
    device = tmp_path / "gpu0"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.chmod(0o666)
    except OSError:
        pytest.skip("mknod is not permitted here")
    gpu = ContainerGpu("GPU-1", "fake", 1_024, (str(device),))
    engine = engine_on(daemon, gpus=(gpu, ContainerGpu("GPU-2")), gpu_devices="files")
    [node] = (await engine.look()).nodes
    assert [each.uuid for each in node.facts.gpus] == ["GPU-1", "GPU-2"]
    order = task(1, "sh", "-c", f"test -c {device}", gpus=(GpuHold("GPU-1", 1_000),))
    ref = await engine.ask(order, tag(1), again=False)
    assert (await proof(engine, ref, 1)).code == 0
    ref = await engine.ask(task(2, "sh", "-c", f"test -c {device}"), tag(2), again=False)
    assert (await proof(engine, ref, 2)).code == 1
    await engine.close()


async def test_a_missing_image_and_program_are_refused(daemon: DockerDaemon) -> None:
    engine = engine_on(daemon)
    with pytest.raises(AskRefused, match="is missing, and pull") as refused:
        await engine.ask(task(1, "true", image="localhost/none:1"), tag(1), again=False)
    assert refused.value.lasting
    # With an init process the container starts, and the init process reports the missing program as 127.
    ref = await engine.ask(task(2, "/no/such/program"), tag(2), again=False)
    assert (await proof(engine, ref, 2)).code == 127
    await engine.forget(ref, tag(2))
    await engine.close()
    engine = engine_on(daemon, init=False)
    with pytest.raises(AskRefused) as refused:
        await engine.ask(task(2, "/no/such/program"), tag(2), again=False)
    assert refused.value.lasting
    assert (await engine.look()).jobs == ()
    await engine.close()


async def test_an_image_that_cannot_be_pulled_is_refused_after_the_try(daemon: DockerDaemon) -> None:
    engine = engine_on(daemon, pull="missing")
    missing = task(1, "true", image="127.0.0.1:1/none:1")
    with pytest.raises(AskRefused, match="is being pulled") as refused:
        await engine.ask(missing, tag(1), again=False)
    assert not refused.value.lasting
    async with asyncio.timeout(PATIENCE_S):
        while not refused.value.lasting:
            await asyncio.sleep(0.1)
            with pytest.raises(AskRefused) as refused:
                await engine.ask(missing, tag(1), again=True)
    assert "cannot be pulled" in refused.value.why
    await engine.close()


async def test_a_container_that_was_created_and_never_started_is_started(daemon: DockerDaemon) -> None:
    """As after a kill of the controller between the two requests."""
    engine = engine_on(daemon)
    labels = ("--label", f"corral.tag={tag(1)}", "--label", f"corral.cluster={prefix_of(STORE)}")
    done = daemon.ask("create", "--network=host", "--name", tag(1), *labels, IMAGE, "sh", "-c", "exit 9")
    assert done.returncode == 0, done.stderr
    [found] = (await engine.look()).jobs
    assert found.state is ForeignState.WAITING
    ref = await engine.ask(task(1, "sh", "-c", "exit 9"), tag(1), again=True)
    assert ref == found.ref
    assert (await proof(engine, ref, 1)).code == 9
    await engine.close()


async def test_other_containers_are_not_seen(daemon: DockerDaemon) -> None:
    engine = engine_on(daemon)
    other = (
        "--label",
        "corral.tag=corral-ffffffffffff-1-1-0",
        "--label",
        "corral.cluster=corral-ffffffffffff-",
    )
    assert daemon.ask("create", "--network=host", "--name", "theirs", IMAGE, "true").returncode == 0
    assert daemon.ask("create", "--network=host", "--name", "other", *other, IMAGE, "true").returncode == 0
    assert (await engine.look()).jobs == ()
    await engine.close()


async def test_an_unknown_user_is_refused(daemon: DockerDaemon) -> None:
    engine = engine_on(daemon)
    with pytest.raises(AskRefused, match="has no user") as refused:
        await engine.ask(task(1, "true", user="no-such-user"), tag(1), again=False)
    assert refused.value.lasting
    await engine.close()
