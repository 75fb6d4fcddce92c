"""The environment of a job and its peers, tested with processes that connect by it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from controller.core.model.inputs import agent_inputs
from tests.agent.agent_process import AgentProcess, end_all, eventually
from tests.engine_harness import EngineHarness, facts, spec
from wire.agent.orders import Go, Start
from wire.agent.reports import Hello

RENDEZVOUS = """
import os, socket, sys
env = os.environ
rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
meet = (env["MASTER_ADDR"], int(env["MASTER_PORT"]))
assert rank == int(env["SLURM_PROCID"]) and size == int(env["SLURM_NTASKS"])
assert rank == int(env["NODE_RANK"]) * int(env["LOCAL_WORLD_SIZE"]) + int(env["LOCAL_RANK"])
if rank == 0:
    server = socket.create_server(meet, backlog=size)
    peers = [server.accept()[0] for _ in range(size - 1)]
    files = [peer.makefile("rw") for peer in peers]
    ranks = [0, *(int(file.readline()) for file in files)]
    for file in files:
        file.write(f"{sum(ranks)}\\n"); file.flush()
    print("all", *sorted(ranks))
else:
    while True:
        try:
            file = socket.create_connection(meet, 5).makefile("rw")
            break
        except ConnectionRefusedError:
            continue
    file.write(f"{rank}\\n"); file.flush()
    print("sum", file.readline().strip())
"""
_NAMES = itertools.count()


@dataclass
class Place:
    """The network namespace of an agent, and its address."""

    address: str
    prefix: tuple[str, ...] = ()


@pytest.fixture
def places() -> Iterator[tuple[Place, Place]]:
    """Two hosts: connected network namespaces if they can be made, otherwise this host twice."""
    if shutil.which("ip") is None:
        pytest.skip("no ip here; 'apt-get install iproute2' brings it")
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode:
        yield Place("127.0.0.1"), Place("127.0.0.1")
        return
    number = next(_NAMES)
    names = [f"corral{os.getpid()}x{number}{side}" for side in "ab"]
    addresses = ["10.77.0.1", "10.77.0.2"]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "cable",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            names[1],
        )
        for name, address in zip(names, addresses, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        one, other = (
            Place(address, ("nsenter", f"--net=/run/netns/{name}"))
            for name, address in zip(names, addresses, strict=True)
        )
        yield one, other
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def orders(places: tuple[Place, ...], **asked: object) -> list[Start]:
    """The start orders of one job on all these nodes."""
    harness = EngineHarness()
    for index, place in enumerate(places):
        name = f"n{index}"
        harness.tell(
            agent_inputs.AgentSaidHello(
                name, Hello(name, "0", "b", "i", replace(facts(name), address=place.address))
            )
        )
    harness.submit(replace(spec(**asked), command=("python3", "-c", RENDEZVOUS)))  # type: ignore[arg-type]
    return harness.tick()


def test_launcher_reaches_its_peers_on_other_hosts(places: tuple[Place, Place], tmp_path: Path) -> None:
    """Two nodes, two processes each: all meet at MASTER_ADDR and add up their ranks."""
    agents = [
        AgentProcess(tmp_path / f"spool{index}", prefix=place.prefix) for index, place in enumerate(places)
    ]
    try:
        for agent, order in zip(agents, orders(places, gpus=4, nodes=2, tasks_per_node=2), strict=True):
            agent.hello()
            agent.send(order)
        for agent in agents:
            agent.until(lambda _, agent=agent: any(each.ready for each in agent.reports(1)))
        for agent in agents:
            agent.send(Go(1, 1))
        assert [agent.ended(1).code for agent in agents] == [0, 0], [
            agent.log(1, "stderr") for agent in agents
        ]
        told = [line for agent in agents for line in agent.log(1).decode().splitlines()]
        assert sorted(told) == ["all 0 1 2 3", "sum 6", "sum 6", "sum 6"]
    finally:
        for agent in agents:
            agent.process.kill()
            agent.wait_exit()
            end_all(agent.spool)


def test_single_process_has_no_gang_variables(run: object) -> None:
    """Frameworks that find RANK or SLURM_PROCID would look for other processes, and leave GPUs unused."""
    agent = run()  # type: ignore[operator]
    (order,) = orders((Place("127.0.0.1"),), gpus=2)
    agent.send(replace(order, command=("env",)))
    assert agent.ended(1).code == 0
    seen = dict(line.split("=", 1) for line in agent.log(1).decode().splitlines())
    assert {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "SLURM_PROCID",
        "SLURM_NTASKS",
    } & seen.keys() == set()
    assert seen["CUDA_VISIBLE_DEVICES"] == ",".join(hold.uuid for hold in order.gpus)
    assert (seen["SLURM_JOB_ID"], seen["SLURM_JOB_NODELIST"], seen["SLURM_GPUS_ON_NODE"]) == ("1", "n0", "2")


def test_failed_task_ends_the_other_tasks(run: object) -> None:
    agent = run()  # type: ignore[operator]
    agent.start(1, "sh", "-c", "test $LOCAL_RANK != 1 || exit 7; sleep 1000", tasks=3)
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (7, "")


def test_the_attempt_lasts_as_long_as_its_last_task(run: object) -> None:
    agent = run()  # type: ignore[operator]
    script = (
        "echo $LOCAL_RANK; test $LOCAL_RANK != 0 || exit 0; "
        "while ! test -e done; do sleep 0.02; done; echo last"
    )
    agent.start(1, "sh", "-c", script, tasks=2, workdir=str(agent.spool))
    eventually(lambda: sorted(agent.log(1).decode().split()) == ["0", "1"])
    (agent.spool / "done").touch()
    assert agent.ended(1).code == 0
    assert sorted(agent.log(1).decode().split()) == ["0", "1", "last"]
