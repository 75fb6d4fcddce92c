"""The event stream: every event once and in order, also after broken connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from controller import commit_feed
from controller.api.server import event_stream
from controller.core.model.inputs import node_inputs
from tests.controller.api.running_controller import RunningController, start_controller
from tests.limits import PATIENCE_S
from wire.agent.reports import GpuReport, GpuSample


@dataclass
class Message:
    """One server-sent event; a heartbeat has no data."""

    id: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def listening(
    api: RunningController, headers: dict[str, str] | None = None, **query: Any
) -> AsyncIterator[AsyncIterator[Message]]:
    """Messages from a new connection."""
    connector = aiohttp.UnixConnector(str(api.socket))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://corral/v1/stream", params=query, headers=headers) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        yield messages(response)


async def messages(response: aiohttp.ClientResponse) -> AsyncIterator[Message]:
    text = b""
    async for piece in response.content.iter_any():
        *whole, text = (text + piece).split(b"\n\n")
        for block in whole:
            lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":"))
            yield Message(
                int(lines[b"id"]) if b"id" in lines else None,
                json.loads(lines[b"data"]) if b"data" in lines else {},
            )


async def next_batch(messages: AsyncIterator[Message]) -> Message:
    async for message in messages:
        if message.data:
            return message
    raise AssertionError("the stream has ended")


async def test_stream_sends_commits_with_the_rows_they_changed(api: RunningController) -> None:
    async with listening(api) as messages:
        assert await anext(messages) == Message()  # the stream begins with a heartbeat
        await api.join("gpu01")
        batch = await next_batch(messages)
        assert [event["kind"] for event in batch.data["events"]] == ["NodeJoined"]
        assert [node["name"] for node in batch.data["nodes"]] == ["gpu01"]
        job = await api.submit(gpus=1)
        kinds, last = [], batch
        while "JobPlaced" not in kinds:
            last = await next_batch(messages)
            kinds += [event["kind"] for event in last.data["events"]]
        assert kinds == ["JobQueued", "JobPlaced"]
        assert [row["id"] for row in last.data["jobs"]] == [job]
        assert last.data["jobs"][0]["state"] == "SCHEDULED"
        assert last.data["nodes"][0]["jobs"] == [job]
        assert last.id == last.data["seq"] == api.daemon.seq


async def test_stream_without_rows_sends_only_events(api: RunningController) -> None:
    async with listening(api, rows=0, after=0) as messages:
        await api.submit()
        batch = await next_batch(messages)
        assert (len(batch.data["events"]), batch.data["jobs"], batch.data["nodes"]) == (1, [], [])


async def test_stream_continues_after_the_entry_in_query_or_header(api: RunningController) -> None:
    for _ in range(5):
        await api.submit()
    async with listening(api, after=2) as messages:
        assert [event["seq"] for event in (await next_batch(messages)).data["events"]] == [3, 4, 5]
    async with listening(api, headers={"Last-Event-ID": "4"}) as messages:
        assert [event["seq"] for event in (await next_batch(messages)).data["events"]] == [5]
    async with listening(api) as messages:
        await anext(messages)
        await api.submit()
        assert [event["seq"] for event in (await next_batch(messages)).data["events"]] == [6]


async def test_stream_position_beyond_the_journal_is_refused(api: RunningController) -> None:
    await api.submit()
    status, problem = await api.get("/v1/stream", after=2)
    assert (status, problem["code"], problem["where"]) == (409, "conflict", "after")
    assert problem["hint"]


async def test_large_commit_is_sent_in_batches(api: RunningController) -> None:
    async with listening(api, after=0) as messages:
        body = {"spec": {"command": ["true"], "array": "1-1700"}}
        await api.post("/v1/jobs", body)
        batches = [await next_batch(messages) for _ in range(4)]
    assert [len(batch.data["events"]) for batch in batches] == [500, 500, 500, 200]
    assert [len(batch.data["jobs"]) for batch in batches] == [500, 500, 500, 200]
    assert [batch.id for batch in batches] == [500, 1000, 1500, 1700]
    async with listening(api, after=0) as messages:
        assert [await next_batch(messages) for _ in range(4)] == batches


async def test_new_readings_are_sent_without_a_journal_entry(api: RunningController) -> None:
    await api.join("gpu01", gpus=1)
    async with listening(api) as messages:
        await anext(messages)
        api.daemon.agents.on_frame("gpu01", GpuReport((GpuSample("GPU-gpu01-0", 55),)))
        batch = await next_batch(messages)
        assert (batch.id, batch.data["events"], batch.data["seq"]) == (None, [], api.daemon.seq)
        assert batch.data["nodes"][0]["gpus"][0]["utilisation"] == 55


async def test_stream_rows_of_forgotten_jobs_come_from_the_store() -> None:
    async with start_controller(controller={"keep_ended": 0}) as api:
        async with listening(api, after=0) as messages:
            job = await api.submit()
            await api.post(f"/v1/jobs/{job}/cancel")
            state = ""
            while state != "CANCELLED":
                (row,) = (await next_batch(messages)).data["jobs"]
                state = row["state"]
        async with listening(api, after=0) as messages:
            (row,) = (await next_batch(messages)).data["jobs"]
            assert (row["id"], row["state"]) == (job, "CANCELLED")


async def test_idle_stream_sends_heartbeats(api: RunningController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.01)
    async with listening(api) as messages:
        assert [await anext(messages) for _ in range(3)] == [Message()] * 3
        await api.submit()
        assert (await next_batch(messages)).data["events"]


async def test_streams_end_with_the_controller() -> None:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(start_controller())
        messages = await stack.enter_async_context(listening(api))
        await anext(messages)
        api.daemon.stop()
        await api.server.close()
        assert [message async for message in messages if message.data] == []


async def test_disconnected_stream_client_is_forgotten(api: RunningController) -> None:
    async with listening(api) as messages:
        await anext(messages)
        assert len(api.server._streams._open) == 1
    while api.server._streams._open:
        await asyncio.sleep(0)


@pytest.mark.parametrize("behind", [commit_feed.MAX_PENDING_COMMITS, 3, 1, 0])
@pytest.mark.parametrize("seed", range(2))
async def test_stream_has_no_gap_and_no_duplicate_after_broken_connections(
    api: RunningController, monkeypatch: pytest.MonkeyPatch, seed: int, behind: int
) -> None:
    """Under load, with lines cut at random, and with listeners that are always too slow."""
    monkeypatch.setattr(commit_feed, "MAX_PENDING_COMMITS", behind)
    dice = random.Random(seed)
    await api.join("gpu01")
    loads = [asyncio.create_task(load(api, random.Random(seed * 100 + number))) for number in range(4)]
    listeners = [asyncio.create_task(broken_listener(api, random.Random(dice.random()))) for _ in range(3)]
    await asyncio.gather(*loads)
    await api.handle(node_inputs.Drain("gpu01", "root", "the end"))
    _, page = await api.get("/v1/jobs")
    for listener in listeners:
        seen, rows = await listener
        assert seen == list(range(1, api.daemon.seq + 1))
        assert rows == {row["id"]: row for row in page["jobs"]}


async def load(api: RunningController, dice: random.Random) -> None:
    for _ in range(15):
        job = await api.submit(gpus=dice.choice([0, 1, 0.5]), hold=dice.random() < 0.3)
        if dice.random() < 0.5:
            await api.post(f"/v1/jobs/{job}/{dice.choice(['cancel', 'hold', 'release'])}")
        known = api.daemon.state.jobs[job]
        if known.held:
            await api.post(f"/v1/jobs/{job}/cancel")
        elif not known.state.terminal:
            await api.ended(job)


async def broken_listener(api: RunningController, dice: random.Random) -> tuple[list[int], dict[int, Any]]:
    """Follow with a line that is cut again and again, until the drain that ends the story."""
    seen: list[int] = []
    rows: dict[int, Any] = {}
    while True:
        place: dict[str, Any] = {"after": seen[-1] if seen else 0}
        if seen and dice.random() < 0.5:
            place = {"headers": {"Last-Event-ID": str(seen[-1])}}
        async with listening(api, **place) as messages:
            left = dice.randrange(1, 12)
            async for message in messages:
                if not message.data:
                    continue
                seen += [event["seq"] for event in message.data["events"]]
                rows |= {row["id"]: row for row in message.data["jobs"]}
                if any(event["kind"] == "NodeDrained" for event in message.data["events"]):
                    return seen, rows
                left -= 1
                if not left:
                    break


async def test_many_readers_of_the_journal_do_not_delay_requests(
    api: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits for a few parts of the journal, not for one part of each reader."""
    jobs, readers = 1_000, 10
    await api.submit(array=f"0-{jobs - 1}", hold=True)
    rendered = 0
    render = event_stream.EventStreams.render_entries

    async def counted(self: event_stream.EventStreams, entries: Any, rows: bool, caller: Any) -> bytes:
        nonlocal rendered
        data = await render(self, entries, rows, caller)
        rendered += len(entries)
        return data

    monkeypatch.setattr(event_stream.EventStreams, "render_entries", counted)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
        messages = [await stack.enter_async_context(listening(api, after=0)) for _ in range(readers)]
        reading = [asyncio.create_task(_read_to(each, jobs)) for each in messages]
        waits = []
        while rendered < readers * jobs // 3:
            before = rendered
            assert (await api.get("/v1/health"))[0] == 200
            waits.append(rendered - before)
        assert max(waits) <= 4 * event_stream.BATCH
        await asyncio.gather(*reading)


async def _read_to(messages: AsyncIterator[Message], seq: int) -> None:
    """Reads up to this entry; every message continues after the previous one."""
    last = 0
    async for message in messages:
        if message.id is not None:
            assert message.id > last
            last = message.id
            if last >= seq:
                return
