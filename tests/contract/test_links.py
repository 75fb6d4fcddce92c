"""The contract of every link. The agents are real."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from controller.nodes import session
from controller.nodes.link import LinkLost, LogMissing, NodeAway, NodeLink
from tests.agent.agent_process import alive
from tests.controller.nodes.link_setups import LINK_SETUPS, PATIENCE_S, FrameListener, LinkSetup
from wire.agent.orders import Settle, Start, Stop
from wire.agent.reports import Hello


@pytest.fixture(params=LINK_SETUPS)
async def setup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LinkSetup]:
    made = LINK_SETUPS[request.param](tmp_path / "spool")
    await made.begin()
    yield made
    await made.end()


Opened = tuple[NodeLink, FrameListener]


@pytest.fixture
async def open_link(setup: LinkSetup) -> AsyncIterator[Callable[..., Any]]:
    """Opens links and waits for their first hello."""
    links: list[NodeLink] = []

    async def begin(**how: float) -> Opened:
        link, listener = setup.link(**how), FrameListener()
        link.open(listener.deliver)
        links.append(link)
        await listener.nth(Hello)
        return link, listener

    yield begin
    for link in links:
        await link.close()


def order(job: int, *command: str, **more: Any) -> Start:
    return Start(job, 1, command, "somebody", 1000, 100, **more)


async def whole(link: NodeLink, job: int, offset: int = 0, follow: bool = False) -> bytes:
    async with aclosing(link.session().read_log(job, 1, "stdout", offset, follow)) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_hello_is_the_first_frame(open_link: Callable[..., Any]) -> None:
    _, listener = await open_link()
    hello = listener.received[0]
    assert isinstance(hello, Hello)
    assert (hello.node, len(hello.facts.gpus)) == ("gpu01", 2)


async def test_attempts_run_and_end(open_link: Callable[..., Any]) -> None:
    link, listener = await open_link()
    for job in range(1, 51):
        link.send(order(job, "sh", "-c", f"exit {job}"))
    for job in range(1, 51):
        assert (await listener.status(job, ended=True)).code == job


async def test_frames_to_a_closed_link_are_dropped(setup: LinkSetup) -> None:
    link, listener = setup.link(), FrameListener()
    link.send(order(1, "true"))
    with pytest.raises(NodeAway):
        await whole(link, 1)
    link.open(listener.deliver)
    link.send(order(2, "true"))
    assert (await listener.nth(Hello)).attempts == ()
    await link.close()
    link.send(order(3, "true"))
    with pytest.raises(NodeAway):
        await whole(link, 1)


async def test_logs_are_read_whole_in_part_and_live(open_link: Callable[..., Any], tmp_path: Path) -> None:
    link, listener = await open_link()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    link.send(order(1, "sh", "-c", f"printf 'a\\0b\\n'; read -r _ < {gate}; echo end"))
    await listener.status(1, ended=False)
    async with aclosing(link.session().read_log(1, 1, "stdout", 0, True)) as live:
        assert await anext(live) == b"a\0b\n"
        assert await asyncio.to_thread(gate.write_text, "\n")
        assert [piece async for piece in live] == [b"end\n"]
    assert await whole(link, 1) == b"a\0b\nend\n"
    assert await whole(link, 1, offset=2) == b"b\nend\n"
    assert await whole(link, 1, offset=-4) == b"end\n"
    with pytest.raises(LogMissing, match="no log of attempt 1 of job 2"):
        await whole(link, 2)


async def test_slow_reader_blocks_no_other_and_loses_nothing(
    open_link: Callable[..., Any], tmp_path: Path
) -> None:
    link, listener = await open_link()
    data = os.urandom(6 * 1024 * 1024)
    (tmp_path / "data").write_bytes(data)
    link.send(order(1, "cat", str(tmp_path / "data")))
    await listener.status(1, ended=True)
    async with aclosing(link.session().read_log(1, 1, "stdout", -len(data), False)) as slow:
        first = await anext(slow)
        assert await whole(link, 1) == data
        link.send(order(2, "true"))
        await listener.status(2, ended=True)
        kept = sum(len(each._chunks) for each in link._session._logs.values())
        assert kept <= session.MAX_LOG_CHUNKS
        assert first + b"".join([piece async for piece in slow]) == data


async def test_reader_that_stops_is_forgotten(open_link: Callable[..., Any]) -> None:
    link, listener = await open_link()
    link.send(order(1, "sh", "-c", "echo line; sleep 1000"))
    await listener.status(1, ended=False)
    async with aclosing(link.session().read_log(1, 1, "stdout", 0, True)) as live:
        assert await anext(live) == b"line\n"
    waiting = asyncio.create_task(whole(link, 1, follow=True))
    link.send(Stop(1, 1))
    assert await waiting == b"line\n"
    cancelled = asyncio.create_task(whole(link, 1))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert link._session._logs == {}


async def test_killed_agent_is_restarted_with_its_attempts(
    open_link: Callable[..., Any], setup: LinkSetup
) -> None:
    link, listener = await open_link()
    link.send(order(1, "sleep", "1000"))
    link.send(order(2, "true"))
    pid = (await listener.status(1, ended=False)).pid
    assert (await listener.status(2, ended=True)).code == 0
    link.send(Settle(2, 1))
    reading = asyncio.create_task(whole(link, 1, follow=True))
    await asyncio.sleep(0)
    os.kill(setup.agent(), signal.SIGKILL)
    with pytest.raises(NodeAway):
        await reading
    await listener.nth(LinkLost)
    again = await listener.nth(Hello, 2)
    assert [status.pid for status in again.attempts if status.job == 1] == [pid]
    kinds = [type(each) for each in listener.received if isinstance(each, (Hello, LinkLost))]
    assert kinds == [Hello, LinkLost, Hello]
    link.send(Stop(1, 1))
    assert (await listener.status(1, ended=True)).why == "cancelled"


async def test_a_silent_agent_is_replaced(open_link: Callable[..., Any], setup: LinkSetup) -> None:
    _, listener = await open_link(ping_s=0.05, silence_s=0.5)
    stopped = setup.agent()
    os.kill(stopped, signal.SIGSTOP)
    lost = await listener.nth(LinkLost)
    assert "has not answered" in lost.why
    await listener.nth(Hello, 2)
    assert not alive(stopped)


async def test_pings_keep_a_quiet_agent(open_link: Callable[..., Any]) -> None:
    link, listener = await open_link(ping_s=0.05, silence_s=0.5)
    link.send(order(1, "sleep", "1.5"))
    await listener.status(1, ended=True)
    assert not any(isinstance(each, LinkLost) for each in listener.received)


async def test_an_agent_that_does_not_read_costs_no_memory(
    open_link: Callable[..., Any], setup: LinkSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_UNREAD_BYTES", 1 << 20)
    link, listener = await open_link()
    os.kill(setup.agent(), signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_S):
        while not any(isinstance(each, LinkLost) for each in listener.received):
            link.send(order(1, "true", env={"LONG": "x" * 100_000}))
            await asyncio.sleep(0)
    assert "does not read" in (await listener.nth(LinkLost)).why
    await listener.nth(Hello, 2)


async def test_closed_link_ends_the_agent_and_keeps_its_attempts(
    open_link: Callable[..., Any], setup: LinkSetup
) -> None:
    link, listener = await open_link()
    link.send(order(1, "sleep", "1000"))
    pid = (await listener.status(1, ended=False)).pid
    agent = setup.agent()
    await link.close()
    assert not alive(agent)
    assert not any(isinstance(each, LinkLost) for each in listener.received)
    link.open(listener.deliver)
    again = await listener.nth(Hello, 2)
    assert [status.pid for status in again.attempts] == [pid]


async def test_lease_is_renewed_while_the_link_is_up(open_link: Callable[..., Any]) -> None:
    link, listener = await open_link(ping_s=0.2, silence_s=2.0)
    link.send(order(1, "sleep", "4", lease_s=1.5))
    assert (await listener.status(1, ended=True)).code == 0


async def test_lease_expires_when_the_link_is_down(open_link: Callable[..., Any], setup: LinkSetup) -> None:
    link, listener = await open_link(ping_s=0.2, silence_s=2.0)
    link.send(order(1, "sleep", "1000", lease_s=1.5))
    link.send(order(2, "sleep", "1000"))
    pids = [(await listener.status(job, ended=False)).pid for job in (1, 2)]
    await link.close()
    async with asyncio.timeout(PATIENCE_S):
        while alive(pids[0]):
            await asyncio.sleep(0.05)
    assert alive(pids[1])
    link.open(listener.deliver)
    told = {status.job: status for status in (await listener.nth(Hello, 2)).attempts}
    assert told[1].why.startswith("node_lost: no message from the controller")
    assert told[2].ended_at is None
