"""wire.http.client and the API understand each other: every call, over the socket and over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.core.model.inputs import agent_inputs
from controller.nodes.local import LocalLink
from tests.controller.api.running_controller import RunningController, start_controller
from wire.api.service.cluster import StreamBatch
from wire.cluster.hosts import HostSpec
from wire.http.client import Client, Refused
from wire.job.spec import JobSpec
from wire.names import JobState, NodeState


def unix(api: RunningController) -> Client:
    return Client(f"unix://{api.socket}")


def tcp(api: RunningController) -> Client:
    token = (api.daemon.config.state_dir / "token").read_text().strip()
    return Client(api.server.tcp_url, token=token)


@pytest.mark.parametrize("connect", [unix, tcp])
async def test_client_understands_every_call(
    tmp_path: Path, connect: Callable[[RunningController], Client]
) -> None:
    async with start_controller(api={"listen": "127.0.0.1:0"}) as api:
        api.daemon.agents.open(
            LocalLink(
                "here", HostSpec("", spool=str(tmp_path / "spool"), gpus="simulated:2xH100", run_as_self=True)
            )
        )
        await api.until(lambda: (node := api.daemon.state.nodes.get("here")) is not None and node.up)
        await asyncio.to_thread(converse, connect(api), api)


def converse(client: Client, api: RunningController) -> None:
    batches = client.stream(0)
    done = client.submit(JobSpec(("sh", "-c", "echo hello"), gpus=0.5, env={"A": "b"}, time_limit_s=60))
    assert client.submit(JobSpec(("true",)), key="k").ids == client.submit(JobSpec(("true",)), key="k").ids
    seen = follow(batches, done.ids[0])
    assert seen[0] == 1
    held = client.submit(JobSpec(("true",), hold=True, array="0-3"))
    assert client.job(f"{held.label}_2").job.label == f"{held.label}_2"
    assert client.hold(held.ids[0]).state is JobState.QUEUED
    assert client.release(held.ids[0]).id == held.ids[0]
    assert client.cancel(held.ids[1]).state is JobState.CANCELLED
    detail = client.job(done.ids[0])
    assert (detail.job.state, detail.spec.env, detail.spec.gpus) == (JobState.COMPLETED, {"A": "b"}, 0.5)
    assert b"".join(client.logs(done.ids[0], follow=True)) == b"hello\n"
    assert b"".join(client.logs(done.ids[0], offset=-3)) == b"lo\n"
    assert [job.id for job in client.jobs(states=[JobState.QUEUED], after=held.ids[1], limit=1).jobs] == [
        held.ids[2]
    ]
    assert client.jobs(history=True, limit=1).jobs[0].id == held.ids[-1]
    assert client.drain("here", "new fans").state is NodeState.DRAINED
    assert client.node("here").why == "new fans"
    assert client.resume("here").state is NodeState.UP
    assert [gpu.model for gpu in client.nodes().nodes[0].gpus] == ["NVIDIA H100 80GB HBM3"] * 2
    assert client.cluster().gpus == 2
    assert client.health().role == "admin"
    assert [event.kind for event in client.events(job=held.ids[1]).events] == ["JobQueued", "JobEnded"]
    with pytest.raises(Refused) as caught:
        client.submit(JobSpec(("true",), gpus=3, nodes=1))
    assert (caught.value.status, caught.value.problem.where) == (422, "spec.gpus")
    client.close()


def follow(batches: Iterator[StreamBatch | None], job: int) -> list[int]:
    """Positions on the stream until the job has ended."""
    seen = []
    for batch in batches:
        if batch is not None:
            seen += [event.seq for event in batch.events]
            if any(row.id == job and row.state.terminal for row in batch.jobs):
                break
    return seen


async def test_client_understands_every_stream(api: RunningController) -> None:
    await api.join("gpu01")
    job = await api.submit(gpus=8)
    await api.started(job)
    await api.handle(agent_inputs.LinkWentDown("gpu01", "cable"))
    await api.join("gpu01")
    assert await asyncio.to_thread(lambda: next(batch for batch in unix(api).stream(0) if batch is not None))
