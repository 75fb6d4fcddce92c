"""The output of jobs through the API, written by real jobs under a real agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from controller.api.handlers.jobs import logs
from controller.nodes.local import LocalLink
from tests.controller.api.running_controller import RunningController, start_controller
from wire.cluster.hosts import HostSpec
from wire.names import JobState


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningController]:
    """A controller with one real node."""
    async with start_controller() as made:
        made.daemon.agents.open(
            LocalLink("here", HostSpec("", spool=str(tmp_path / "spool"), gpus="none", run_as_self=True))
        )
        await made.until(lambda: (node := made.daemon.state.nodes.get("here")) is not None and node.up)
        yield made


async def ended(api: RunningController, job: int) -> None:
    await api.until(lambda: api.daemon.state.jobs[job].state.terminal)


async def output(api: RunningController, job: int, **query: str | int) -> bytes:
    async with api.session.get(f"http://corral/v1/jobs/{job}/logs", params=query) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "application/octet-stream"
        return await response.read()


async def test_both_log_streams_are_readable_from_any_offset(api: RunningController) -> None:
    job = await api.submit("sh", "-c", "printf 0123456789; printf wrong >&2")
    await ended(api, job)
    assert await output(api, job) == b"0123456789"
    assert await output(api, job, stream="stderr") == b"wrong"
    assert await output(api, job, offset=7) == b"789"
    assert await output(api, job, offset=-4) == b"6789"
    assert await output(api, job, offset=1000) == b""
    assert await output(api, job, node="here") == b"0123456789"


async def test_log_bytes_are_returned_unchanged(api: RunningController) -> None:
    job = await api.submit("sh", "-c", r"printf '\000\377\033[2J'; head -c 300000 /dev/zero")
    await ended(api, job)
    assert await output(api, job) == b"\x00\xff\x1b[2J" + bytes(300_000)


async def test_followed_log_shows_new_output_and_ends_with_the_job(
    api: RunningController, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = await api.submit("sh", "-c", f"echo first; cat {gate}; echo last")
    await api.until(lambda: api.daemon.state.jobs[job].state is JobState.RUNNING)
    async with api.session.get(f"http://corral/v1/jobs/{job}/logs", params={"follow": 1}) as response:
        assert await response.content.readline() == b"first\n"
        await asyncio.to_thread(gate.write_text, "through the gate\n")
        assert await response.read() == b"through the gate\nlast\n"


async def test_client_that_leaves_a_silent_log_is_forgotten(
    api: RunningController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FIRST_PIECE_S", 0.05)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = await api.submit("sh", "-c", f"cat {gate}")
    await api.until(lambda: api.daemon.state.jobs[job].state is JobState.RUNNING)
    before = len(asyncio.all_tasks())
    connector = aiohttp.UnixConnector(str(api.socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        response = await session.get(f"http://corral/v1/jobs/{job}/logs", params={"follow": 1})
        assert response.status == 200  # the answer has begun, though nothing was written
        assert len(asyncio.all_tasks()) > before
    while len(asyncio.all_tasks()) > before:
        await asyncio.sleep(0)
    await asyncio.to_thread(gate.write_text, "")
    await ended(api, job)


@pytest.mark.parametrize(
    ("query", "where"),
    [({"stream": "stdin"}, "stream"), ({"offset": "x"}, "offset"), ({"follow": "yes"}, "follow")],
)
async def test_invalid_log_queries_are_refused(
    api: RunningController, query: dict[str, str], where: str
) -> None:
    job = await api.submit()
    await ended(api, job)
    status, problem = await api.get(f"/v1/jobs/{job}/logs", **query)
    assert (status, problem["where"]) == (400, where)


async def test_unreadable_log_is_refused_with_a_reason(api: RunningController) -> None:
    waiting = await api.submit(hold=True)
    status, problem = await api.get(f"/v1/jobs/{waiting}/logs")
    assert (status, problem["code"]) == (409, "conflict")
    assert "has not started" in problem["message"]
    job = await api.submit()
    await ended(api, job)
    status, problem = await api.get(f"/v1/jobs/{job}/logs", node="elsewhere")
    assert (status, problem["where"], problem["hint"]) == (404, "node", "Its nodes are here.")
    await api.daemon.agents.links["here"].close()
    status, problem = await api.get(f"/v1/jobs/{job}/logs")
    assert (status, problem["code"]) == (503, "node_away")


async def test_output_is_searched_on_the_node(
    api: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.submit("sh", "-c", "seq 1 300000; echo Traceback; echo traceback; seq 1 300000; echo end")
    await ended(api, job)
    data = await output(api, job)
    assert len(data) > 3 << 20

    async def search(text: str, offset: int = 0, back: int = 0, **more: str) -> tuple[int | None, int]:
        status, body = await api.get(
            f"/v1/jobs/{job}/logs/search", text=text, offset=offset, back=back, **more
        )
        assert (status, body["size"]) == (200, len(data) if not more else 0), body
        return body["found"], body["reached"]

    first = data.index(b"Traceback")
    assert (await search("traceback"))[0] == first
    assert (await search("traceback", first + 1))[0] == data.index(b"traceback")
    assert (await search("traceback", -1, 1))[0] == data.index(b"traceback")
    assert (await search("Traceback", -1, 1))[0] == first
    assert await search("traceback", first, 1) == (None, 0)
    assert await search("none of it") == (None, len(data))
    assert await search("traceback", stream="stderr") == (None, 0)
    # Each text lies across the limit of two blocks.
    for limit in (1 << 20, 2 << 20):
        begin, end = data.rindex(b"\n", 0, limit) + 1, data.index(b"\n", limit)
        assert begin < limit < end
        text = data[begin:end].decode()
        for back in (0, 1):
            found, _ = await search(text, -1 if back else 0, back)
            assert found == (data.rindex(text.encode()) if back else data.index(text.encode()))
    status, body = await api.get(f"/v1/jobs/{job}/logs/search", text="")
    assert (status, body["where"]) == (400, "text")


async def test_search_in_the_output_of_a_waiting_job_is_refused(api: RunningController) -> None:
    job = await api.submit("true", hold=True)
    status, body = await api.get(f"/v1/jobs/{job}/logs/search", text="x")
    assert (status, body["where"]) == (409, "job")
