"""Broken connections and agents that send invalid frames. Repeated failures are logged rarely. The agents are
scripts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from controller.nodes import reconnecting, session
from controller.nodes.link import LinkLost
from controller.nodes.local import LocalLink
from tests.controller.nodes.link_setups import PATIENCE_S, FrameListener
from wire.agent.frames import pack
from wire.agent.orders import Ping
from wire.agent.reports import Hello, NodeFacts, Report
from wire.cluster.hosts import HostSpec

Pretend = Callable[[str], tuple[LocalLink, FrameListener]]
FACTS = {"cpu_milli": 1_000, "memory_mib": 100}
GPU = {"index": 0, "uuid": "GPU-1", "model": "H100", "memory_mib": 80_000}
HELLO = pack(Hello("gpu01", "0", "boot", "1", NodeFacts(1000, 100))).decode().rstrip("\n")


@pytest.fixture
async def pretend(tmp_path: Path) -> AsyncIterator[Pretend]:
    """Opens a link to a shell script that takes the agent's place."""
    links: list[LocalLink] = []

    def begin(script: str) -> tuple[LocalLink, FrameListener]:
        program = tmp_path / "agent"
        program.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\n{script}\n")
        program.chmod(0o755)
        (tmp_path / "hello").write_text(HELLO + "\n")
        (tmp_path / "starts").touch()
        link, listener = (
            LocalLink("gpu01", HostSpec("", spool=str(tmp_path / "spool"), python=str(program))),
            FrameListener(),
        )
        links.append(link)
        link.open(listener.deliver)
        return link, listener

    yield begin
    for link in links:
        await link.close()


async def starts(tmp_path: Path, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (tmp_path / "starts").read_text().count("\n") < number:
            await asyncio.sleep(0.02)


def hello_script(hello: str = HELLO, **changes: object) -> str:
    return f"echo '{json.dumps({**json.loads(hello), **changes})}'; cat > /dev/null"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (hello_script(node="gpu02\x1b[2J"), "its hello names the node 'gpu02\ufffd[2J'"),
        (hello_script(protocol=99), "its protocol version is 99, the controller's is 1"),
        ('echo \'{"t":"pong","beat":1}\'', "its first frame is not a hello but a Pong"),
        ("echo 'Welcome to gpu01!'", "it sent something that is not a frame: frame: not JSON"),
        (hello_script(facts=FACTS | {"memory_mib": -1}), "it reports -1 MiB of memory"),
        (hello_script(facts=FACTS | {"gpus": [GPU, GPU]}), "it reports 2 GPUs with the UUID 'GPU-1'"),
        (hello_script(facts=FACTS | {"gpus": [GPU | {"uuid": ""}]}), "it reports a GPU without a UUID"),
        (
            hello_script(facts=FACTS | {"cpu_milli": 1 << 70}),
            "it sent something that is not a frame: frame: not JSON: a number of",
        ),
        (
            hello_script(clock=float("nan")),
            "it sent something that is not a frame: frame: not JSON: NaN is not a number",
        ),
        ("head -c 3000000 /dev/zero", "a frame is longer than 1000000 bytes"),
        ("echo 'agent: the host is on fire' >&2; exit 3", "the agent ended: the host is on fire"),
        ("exit 0", "the agent ended"),
    ],
)
async def test_output_that_is_not_from_an_agent_loses_the_link_with_a_reason(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(session, "MAX_FRAME", 1_000_000)
    _, listener = pretend(script)
    lost = await listener.nth(LinkLost)
    assert lost.why.startswith(why)
    assert not any(isinstance(each, Hello) for each in listener.received)


async def test_repeated_failure_is_reported_once(
    pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting, "LONGEST_PAUSE_S", 0.1)
    _, listener = pretend("exit 0")
    await starts(tmp_path, 4)
    assert listener.received == [LinkLost("the agent ended")]


async def test_missing_python_is_named(tmp_path: Path) -> None:
    link, listener = (
        LocalLink("gpu01", HostSpec("", spool=str(tmp_path / "spool"), python="/no/such/python")),
        FrameListener(),
    )
    link.open(listener.deliver)
    assert await listener.nth(LinkLost) == LinkLost(
        "the agent cannot be started with /no/such/python: No such file or directory"
    )
    await link.close()


async def test_frame_arrives_in_pieces(pretend: Pretend) -> None:
    report = '{"t":"report","status":{"job":1,"attempt":1,"why":"ü"}}'
    head, tail = report[:20], report[20:]
    _, listener = pretend(
        f"cat \"$(dirname $0)/hello\"; printf '%s' '{head}'; sleep 0.1; echo '{tail}'; cat > /dev/null"
    )
    assert (await listener.nth(Report)).status.why == "ü"


async def test_frames_of_one_turn_are_written_together(pretend: Pretend, tmp_path: Path) -> None:
    """The agent gets all of them with one read."""
    link, listener = pretend(
        f'cat "$(dirname $0)/hello"; dd bs=65536 count=1 of={tmp_path}/read 2> /dev/null'
    )
    await listener.nth(Hello)
    for beat in range(100):
        link.send(Ping(beat))
    await listener.nth(LinkLost)
    assert (tmp_path / "read").read_bytes() == b"".join(pack(Ping(beat)) for beat in range(100))
