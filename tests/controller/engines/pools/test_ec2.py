"""The EC2 pool against a server of our own that plays faults, and against moto."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from controller.engines.contract import EngineScope, EngineUnavailable
from controller.engines.pools.ec2.ec2_api import Ec2Api
from controller.engines.pools.ec2.ec2_pool import CLUSTER_TAG, Ec2Place, Ec2Pool, Ec2PoolType
from controller.engines.pools.machine_pool import (
    MachineOrder,
    MachinePool,
    MachineShape,
    MachineState,
    NoCapacity,
)
from controller.engines.pools.machine_records import Stage
from controller.engines.pools.scale_out import Demand
from tests.controller.engines.fake_engine import PREFIX
from tests.controller.engines.pools.fault_cloud import FaultCloud
from tests.controller.engines.pools.pool_rig import PoolRig
from tests.emulators import emulator
from tests.limits import PATIENCE_S

SHAPE = MachineShape(name="t3.small", cpus=2, memory="2G", price=0.5)
PLACES = (
    Ec2Place(
        region="north", zone="north-a", image="ami-1", subnet="subnet-1", security_groups=("sg-1", "sg-2")
    ),
    Ec2Place(region="north", zone="north-b", image="ami-1"),
    Ec2Place(region="south", image="ami-2"),
)


@pytest.fixture(autouse=True)
def access_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
async def cloud() -> AsyncIterator[FaultCloud]:
    made = FaultCloud()
    await made.start()
    yield made
    await made.close()


def pool_type(cloud: FaultCloud, **more: object) -> Ec2PoolType:
    given = {"places": PLACES, "shapes": (SHAPE,), "endpoint": cloud.url, **more}
    return Ec2PoolType(**given)  # type: ignore[arg-type]


@pytest.fixture
async def pool(cloud: FaultCloud, tmp_path: Path) -> AsyncIterator[Ec2Pool]:
    made = Ec2Pool(pool_type(cloud, spot=True), EngineScope("burst", PREFIX, str(tmp_path)))
    yield made
    await made.close()


async def order(pool: MachinePool, token: str = "m1", zone: str = "north-a", shape: str = "") -> MachineOrder:
    offer = next(each for each in await pool.offers() if each.zone == zone)
    return MachineOrder(f"{PREFIX}{token}", replace(offer, shape=shape or offer.shape), "the host key")


async def test_an_instance_is_started_found_and_ended(cloud: FaultCloud, pool: Ec2Pool) -> None:
    ref = await pool.create(await order(pool))
    [instance] = cloud.instances.values()
    fields = instance.fields
    assert ref == f"north/{instance.id}"
    assert (fields["SubnetId"], fields["SecurityGroupId.2"], fields["ImageId"]) == (
        "subnet-1",
        "sg-2",
        "ami-1",
    )
    assert fields["InstanceMarketOptions.MarketType"] == "spot"
    assert instance.host_key == "the host key"
    [found] = (await pool.machines()).machines
    assert (found.ref, found.token, found.zone) == (ref, f"{PREFIX}m1", "north-a")
    assert (found.state, found.address) == (MachineState.RUNNING, "127.9.0.1")
    await pool.end(ref)
    assert [each.state for each in (await pool.machines()).machines] == [MachineState.ENDED]
    await pool.end("north/i-999")


async def test_the_same_token_starts_one_instance(cloud: FaultCloud, pool: Ec2Pool) -> None:
    made = await order(pool)
    assert await pool.create(made) == await pool.create(made)
    assert len(cloud.instances) == 1


async def test_instances_of_others_are_neither_listed_nor_ended(cloud: FaultCloud, pool: Ec2Pool) -> None:
    ref = await pool.create(await order(pool))
    [instance] = cloud.instances.values()
    instance.tags[CLUSTER_TAG] = "corral-ffffffffffff-burst"
    assert (await pool.machines()).machines == ()
    await pool.end(ref)
    assert instance.state != "terminated"


async def test_all_pages_and_regions_are_listed(cloud: FaultCloud, pool: Ec2Pool) -> None:
    for number in range(7):
        await pool.create(await order(pool, f"m{number}", "south" if number % 2 else "north-b"))
    cloud.page = 2
    listing = await pool.machines()
    assert listing.complete
    assert {each.token for each in listing.machines} == {f"{PREFIX}m{number}" for number in range(7)}
    cloud.down = {"south"}
    listing = await pool.machines()
    assert (listing.complete, len(listing.machines)) == (False, 4)
    cloud.down = {"south", "north"}
    with pytest.raises(EngineUnavailable, match="503"):
        await pool.machines()


async def test_missing_capacity_is_told_from_a_lost_answer(cloud: FaultCloud, pool: Ec2Pool) -> None:
    cloud.full.add(("t3.small", "north-a"))
    with pytest.raises(NoCapacity, match="InsufficientInstanceCapacity"):
        await pool.create(await order(pool))
    with pytest.raises(NoCapacity, match="InvalidParameterValue"):
        await pool.create(await order(pool, shape="nonsense"))
    cloud.lose_answers = 1
    with pytest.raises(EngineUnavailable):
        await pool.create(await order(pool, zone="north-b"))
    assert len(cloud.instances) == 1


async def test_a_spot_notice_has_the_time_of_the_interruption(cloud: FaultCloud, pool: Ec2Pool) -> None:
    await pool.create(await order(pool))
    [instance] = cloud.instances.values()
    instance.notice_at = 1_700_000_000.0
    [found] = (await pool.machines()).machines
    assert found.notice_at == 1_700_000_120.0


async def test_an_answer_with_entities_is_refused(tmp_path: Path) -> None:
    async def bomb(_: web.Request) -> web.Response:
        return web.Response(text='<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')

    app = web.Application()
    app.router.add_post("/", bomb)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = Ec2Api("north", f"http://127.0.0.1:{runner.addresses[0][1]}", "")
    with pytest.raises(EngineUnavailable, match="status 200"):
        await api.call("DescribeInstances", {})
    await api.close()
    await runner.cleanup()


async def test_credentials_are_read_from_a_private_file_only(
    cloud: FaultCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    made = Ec2Pool(pool_type(cloud, credentials_file=str(file)), EngineScope("burst", PREFIX, str(tmp_path)))
    with pytest.raises(EngineUnavailable, match="cannot be read"):
        await made.machines()
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B%C\n")
    file.chmod(0o666)
    with pytest.raises(EngineUnavailable, match="can be written to by others"):
        await made.machines()
    file.chmod(0o600)
    assert (await made.machines()).machines == ()
    await made.close()


class Ec2Rig(PoolRig):
    """A pool of EC2 instances in the fault cloud, in virtual time."""

    def __init__(self, directory: Path, cloud: FaultCloud) -> None:
        self.faults = cloud
        super().__init__(directory, idle_s=60.0, demand_s=1.0)

    def pool(self) -> MachinePool:
        return Ec2Pool(pool_type(self.faults), EngineScope("burst", PREFIX, str(self.directory)))

    async def round(self, seconds: float = 10.0) -> None:
        self.now += seconds
        if self.driver.breaker.may_look(self.now):
            await self.driver.run_round()
        tokens = {each.tags["corral-machine"].removeprefix(PREFIX) for each in self.faults.alive}
        for name, node in self.nodes.items():
            node.up = name.removeprefix("burst-") in tokens
        await self.pools.round()
        await self.driver.runner.idle()


@pytest.mark.parametrize("fault", ["unlisted", "lost", "lost and unlisted", "killed", "terminated"])
async def test_faults_double_and_leak_no_instance(cloud: FaultCloud, tmp_path: Path, fault: str) -> None:
    cloud.hidden = 4 if "unlisted" in fault else 0
    cloud.lose_answers = 2 if "lost" in fault else 0
    rig = Ec2Rig(tmp_path, cloud)
    rig.demand = {"t3.small": Demand(1, 1, "")}
    for number in range(40):
        await rig.round()
        if cloud.instances:
            rig.demand = {}
        if fault == "killed" and number % 2 and number < 20:
            await rig.restart()
        if fault == "terminated" and number == 3:
            cloud.end(cloud.alive[0])
    assert len(cloud.instances) == 1
    assert cloud.alive == []
    assert [each.record.stage for each in rig.fleet] == [Stage.ENDED]
    assert rig.nodes == {}
    await rig.driver.close()


@contextmanager
def moto_server() -> Iterator[str]:
    """Yield the endpoint of moto's server."""
    program = emulator("moto_server")
    with subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", "0"], stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as server:
        try:
            assert server.stderr is not None
            line = next(line for line in server.stderr if "Running on" in line)
            yield line.split()[-1]
        finally:
            server.terminate()


@pytest.mark.engines
async def test_moto_starts_lists_and_ends_instances(tmp_path: Path) -> None:
    """moto takes all requests; the order of the fields and the form of the answers are those of real EC2."""
    with moto_server() as url:
        api = Ec2Api("eu-west-1", url, "")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                images = await api.call("DescribeImages", {"Owner.1": "amazon"})
                break
            except EngineUnavailable:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.5)
        image = images.findtext("imagesSet/item/imageId") or ""
        await api.close()
        place = Ec2Place(region="eu-west-1", zone="eu-west-1a", image=image)
        kind = Ec2PoolType(places=(place,), shapes=(SHAPE,), endpoint=url, spot=True)
        pool = Ec2Pool(kind, EngineScope("burst", PREFIX, str(tmp_path)))
        refs = [await pool.create(await order(pool, f"m{number}", "eu-west-1a")) for number in range(3)]
        found = (await pool.machines()).machines
        assert {each.ref for each in found} == set(refs)
        assert {each.token for each in found} == {f"{PREFIX}m{number}" for number in range(3)}
        assert all(each.address and each.zone == "eu-west-1a" for each in found)
        await pool.end(refs[0])
        states = {each.ref: each.state for each in (await pool.machines()).machines}
        assert states[refs[0]] is MachineState.ENDED
        assert states[refs[1]] is not MachineState.ENDED
        await pool.close()
