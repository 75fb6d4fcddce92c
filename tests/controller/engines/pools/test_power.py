"""Pools of hosts with BMCs: slow and lying BMCs, hosts of administrators, Wake-on-LAN, and two emulators."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.core.model.allocation import Allocation
from controller.engines.contract import EngineScope, EngineUnavailable
from controller.engines.pools.machine_pool import MachineOrder, MachinePool, MachineState
from controller.engines.pools.machine_records import Stage
from controller.engines.pools.pool_engine import PoolEngine
from controller.engines.pools.power.ipmi import IpmiPoolType
from controller.engines.pools.power.power_pool import SOFT_TRIES, PowerHost
from controller.engines.pools.power.redfish import RedfishHost, RedfishPoolType
from controller.engines.pools.power.wake_on_lan import magic_packet, send_magic_packet
from controller.engines.pools.scale_out import Demand
from tests.controller.engines.fake_engine import PREFIX
from tests.controller.engines.pools.fault_bmc import FaultBmcs
from tests.controller.engines.pools.pool_rig import PoolRig
from tests.emulators import emulator
from tests.limits import PATIENCE_S

SIZE = {"cpus": 8, "memory": "32G", "price": 0.0}
MAC = "00:11:22:aa:bb:cc"


def login(directory: Path) -> str:
    file = directory / "bmc"
    file.write_text("admin:secret\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture
async def bmcs() -> AsyncIterator[FaultBmcs]:
    made = FaultBmcs("gpu01", "gpu02")
    await made.start()
    yield made
    await made.close()


class PowerRig(PoolRig):
    """A pool of two hosts with BMCs, in virtual time. An agent is connected while its host is on."""

    def __init__(self, directory: Path, bmcs: FaultBmcs) -> None:
        self.bmcs = bmcs
        hosts = tuple(
            RedfishHost(name=name, address="10.0.0.1", bmc=f"{bmcs.url}/{name}", rack="r1", **SIZE)  # type: ignore[arg-type]
            for name in bmcs.hosts
        )
        self.kind = RedfishPoolType(hosts=hosts, bmc_credentials_file=login(directory))
        super().__init__(directory / "state", idle_s=60.0, demand_s=1.0, join_s=300.0)

    def pool(self) -> MachinePool:
        scope = EngineScope("metal", PREFIX, str(self.directory), 30.0)
        return self.kind.connect(scope).pool

    async def round(self, seconds: float = 10.0) -> None:
        self.now += seconds
        if self.driver.breaker.may_look(self.now):
            await self.driver.run_round()
        for name, node in self.nodes.items():
            node.up = self.bmcs.hosts[name.removeprefix("burst-")].on
        await self.pools.round()
        await self.driver.runner.idle()

    async def switched_on(self, rounds: int = 4) -> None:
        """Let a waiting job need gpu01."""
        self.demand = {"gpu01": Demand(1, 1, "")}
        await self.rounds(2)
        self.demand = {}
        await self.rounds(rounds)

    def stages(self) -> list[Stage]:
        return [each.record.stage for each in self.fleet.live]


async def test_a_host_is_switched_on_for_a_job_and_off_when_idle(bmcs: FaultBmcs, tmp_path: Path) -> None:
    rig = PowerRig(tmp_path, bmcs)
    await rig.rounds(2)
    assert not bmcs.hosts["gpu01"].resets
    await rig.switched_on()
    node = rig.nodes["burst-gpu01"]
    assert (node.labels["rack"], rig.stages()) == ("r1", [Stage.JOINED])
    node.held[7] = Allocation(node.name, 1_000, 100)
    await rig.rounds(20)
    assert bmcs.hosts["gpu01"].resets == ["On"]
    node.held.clear()
    await rig.rounds(25)
    assert bmcs.hosts["gpu01"].resets[:2] == ["On", "GracefulShutdown"]
    assert not bmcs.hosts["gpu01"].on
    assert not bmcs.hosts["gpu02"].resets
    assert (rig.nodes, rig.stages()) == ({}, [])
    await rig.switched_on()
    assert rig.stages() == [Stage.JOINED]
    await rig.driver.close()


async def test_a_slow_bmc_and_one_that_says_off_keep_the_host(bmcs: FaultBmcs, tmp_path: Path) -> None:
    rig = PowerRig(tmp_path, bmcs)
    host = bmcs.hosts["gpu01"]
    host.slow = 5
    await rig.switched_on(6)
    assert rig.stages() == [Stage.JOINED]
    node = rig.nodes["burst-gpu01"]
    node.held[7] = Allocation(node.name, 1_000, 100)
    host.lie = "Off"
    await rig.rounds(20)
    assert rig.stages() == [Stage.JOINED]
    assert (rig.nodes, rig.lost, host.resets) == ({node.name: node}, [], ["On"])
    await rig.driver.close()


async def test_a_bmc_that_says_on_of_a_host_that_is_off(bmcs: FaultBmcs, tmp_path: Path) -> None:
    rig = PowerRig(tmp_path, bmcs)
    host = bmcs.hosts["gpu01"]
    await rig.rounds(2)
    rig.demand = {"gpu01": Demand(1, 1, "")}
    await rig.rounds(1)
    rig.demand = {}
    host.on, host.lie = False, "On"
    await rig.rounds(32)
    assert "GracefulShutdown" in host.resets
    assert "ForceOff" not in host.resets
    await rig.rounds(SOFT_TRIES)
    assert "ForceOff" in host.resets
    assert list(rig.pools.back_off.why) == [("gpu01", "r1")]
    await rig.driver.close()


async def test_a_host_that_an_administrator_switched_on_is_never_switched_off(
    bmcs: FaultBmcs, tmp_path: Path
) -> None:
    rig = PowerRig(tmp_path, bmcs)
    bmcs.hosts["gpu02"].on = True
    await rig.rounds(40)
    assert rig.nodes["burst-gpu02"].up
    await rig.restart()
    await rig.rounds(20)
    assert bmcs.hosts["gpu02"].resets == []
    await rig.driver.close()


async def test_a_drain_by_an_administrator_keeps_the_power_on(bmcs: FaultBmcs, tmp_path: Path) -> None:
    rig = PowerRig(tmp_path, bmcs)
    await rig.switched_on()
    node = rig.nodes["burst-gpu01"]
    node.drained, node.why = True, "new memory"
    await rig.rounds(40)
    assert bmcs.hosts["gpu01"].resets == ["On"]
    await rig.driver.close()


async def test_a_silent_bmc_keeps_its_last_answer(bmcs: FaultBmcs, tmp_path: Path) -> None:
    rig = PowerRig(tmp_path, bmcs)
    await rig.switched_on()
    node = rig.nodes["burst-gpu01"]
    node.held[7] = Allocation(node.name, 1_000, 100)
    bmcs.hosts["gpu01"].silent = True
    await rig.rounds(10)
    assert rig.stages() == [Stage.JOINED]
    bmcs.hosts["gpu02"].silent = True
    with pytest.raises(EngineUnavailable, match="503"):
        await rig.pools.engine.pool.machines()
    await rig.driver.close()


async def test_kills_of_the_controller_forget_no_host(bmcs: FaultBmcs, tmp_path: Path) -> None:
    rig = PowerRig(tmp_path, bmcs)
    await rig.rounds(2)
    rig.demand = {"gpu01": Demand(1, 1, "")}
    for number in range(60):
        await rig.round()
        if bmcs.hosts["gpu01"].on:
            rig.demand = {}
        if number % 3 == 0 and number < 12:
            await rig.restart()
    assert bmcs.hosts["gpu01"].resets.count("On") == 1
    assert not bmcs.hosts["gpu01"].on
    assert rig.stages() == []
    await rig.driver.close()


def test_the_magic_packet_is_sent_to_the_broadcast_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        line.settimeout(PATIENCE_S)
        send_magic_packet(MAC, "127.0.0.1", line.getsockname()[1])
        assert line.recv(1_000) == b"\xff" * 6 + bytes.fromhex("001122aabbcc") * 16
    with pytest.raises(ValueError, match="Ethernet"):
        magic_packet("nonsense")


async def switches(engine: PoolEngine) -> None:
    """Switch the only host of a pool on and off."""
    pool = engine.pool
    await answering(pool)
    [offer] = await pool.offers()
    await pool.create(MachineOrder("m1", offer))
    await becomes(pool, MachineState.RUNNING)
    await pool.create(MachineOrder("m1", offer))
    await pool.end(offer.shape)
    await becomes(pool, MachineState.ENDED)
    await pool.close()


async def answering(pool: MachinePool) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            await pool.machines()
            return
        except EngineUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.3)


async def becomes(pool: MachinePool, state: MachineState) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while [each.state for each in (await pool.machines()).machines] != [state]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.3)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.engines
async def test_redfish_on_sushy_tools(tmp_path: Path) -> None:
    """Its fake driver changes the power 1 to 11 s after a request, as slow hardware does."""
    port = free_port()
    settings = tmp_path / "sushy.py"
    settings.write_text(
        f"SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n"
        f"SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_STATE_DIR = {str(tmp_path)!r}\n"
        "SUSHY_EMULATOR_FAKE_SYSTEMS = [{'uuid': '27946b59-9e44-4fa7-8e91-f3527a1ef094', 'name': 'gpu01',\n"
        "    'power_state': 'Off', 'external_notifier': False, 'nics': []}]\n"
    )
    with subprocess.Popen(
        [emulator("sushy-emulator"), "--config", str(settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            host = RedfishHost(name="gpu01", address="10.0.0.1", bmc=f"http://127.0.0.1:{port}", **SIZE)  # type: ignore[arg-type]
            kind = RedfishPoolType(hosts=(host,))
            await switches(kind.connect(EngineScope("metal", PREFIX, str(tmp_path / "s"), 30.0)))
        finally:
            server.terminate()


@pytest.mark.engines
async def test_ipmi_on_ipmi_sim(tmp_path: Path) -> None:
    simulator = emulator("ipmi_sim")
    emulator("ipmitool")
    port = free_port(socket.SOCK_DGRAM)
    power = tmp_path / "power"
    power.write_text("0")
    chassis = tmp_path / "chassis"
    chassis.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"file = {str(power)!r}\n"
        "words = sys.argv[2:]\n"
        "if words[0] == 'get':\n"
        "    for key in words[1:]:\n"
        "        print(f'{key}:{open(file).read()}' if key == 'power' else f'{key}:0')\n"
        "elif words[0] == 'set':\n"
        "    for key, value in zip(words[1::2], words[2::2]):\n"
        "        if key in ('power', 'shutdown'):\n"
        "            open(file, 'w').write(value if key == 'power' else '0')\n"
    )
    chassis.chmod(0o755)
    (tmp_path / "commands").write_text(
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n"
        "sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n"
    )
    (tmp_path / "lan").write_text(
        'name "gpu01"\nset_working_mc 0x20\n  startlan 1\n'
        f"    addr 127.0.0.1 {port}\n    priv_limit admin\n    allowed_auths_admin none md2 md5 straight\n"
        "    guid a123456789abcdefa123456789abcdef\n  endlan\n"
        f'  chassis_control "{chassis} 0x20"\n'
        '  user 1 true "" "test" user 10 none md2 md5 straight\n'
        '  user 2 true "admin" "secret" admin 10 none md2 md5 straight\n'
    )
    words = ("-c", f"{tmp_path}/lan", "-f", f"{tmp_path}/commands", "-s", f"{tmp_path}/st", "-n")
    with subprocess.Popen(
        [simulator, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            host = PowerHost(name="gpu01", address="10.0.0.1", bmc=f"127.0.0.1:{port}", **SIZE)  # type: ignore[arg-type]
            kind = IpmiPoolType(hosts=(host,), cipher=3, bmc_credentials_file=login(tmp_path))
            await switches(kind.connect(EngineScope("metal", PREFIX, str(tmp_path / "s"), 30.0)))
        finally:
            server.terminate()
