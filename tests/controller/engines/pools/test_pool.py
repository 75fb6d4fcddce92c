"""Machine pools: each stage of a machine, kills of the controller at each step, money, and machines of
others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.model.allocation import Allocation
from controller.engines.pools.machine_pool import Machine, MachineState
from controller.engines.pools.machine_records import UNLISTED_S, Stage
from controller.engines.pools.scale_out import Demand
from tests.controller.engines.fake_engine import PREFIX
from tests.controller.engines.pools.pool_rig import INTERVAL, Cloud, PoolRig

ONE = {"small": Demand(1, 1, "vision")}


def hold(rig: PoolRig, name: str, job: int = 7) -> None:
    rig.nodes[name].held[job] = Allocation(name, 1_000, 100)


async def test_a_machine_is_ordered_used_and_ended_when_idle(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, idle_s=100.0)
    node = await rig.joined()
    assert node.labels["shape"] == "small"
    assert float(node.labels["cost"]) == 1.0
    hold(rig, node.name)
    await rig.rounds(30)
    assert len(rig.cloud.running) == 1
    node.held.clear()
    await rig.rounds(8)
    assert len(rig.cloud.running) == 1
    await rig.rounds(8)
    assert rig.cloud.running == []
    assert (len(rig.cloud.creates), rig.removed) == (1, [node.name])
    assert 0 < rig.pools.budget.spent_today(rig.now, "vision") < 0.2


async def test_a_pending_machine_is_part_of_the_next_question(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, demand_s=1.0, most_unanswered=3)
    rig.demand = {"small": Demand(2, 2, "vision")}
    await rig.rounds(1)
    for each in rig.cloud.machines:
        rig.cloud.change(each.ref, state=MachineState.STARTING)
    await rig.pools.round()
    rig.now += 2
    await rig.pools.round()
    assert rig.asked[0][0] == 0
    assert rig.asked[1][0] == 2
    assert len(rig.cloud.creates) == 2


async def test_no_more_machines_than_permitted_are_unanswered(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, most_unanswered=2, most=5, demand_s=1.0)
    rig.demand = {"small": Demand(50, 50, "vision")}
    await rig.rounds(1)
    assert len(rig.cloud.creates) == 2
    await rig.rounds(20)
    assert len(rig.cloud.running) == 5


@pytest.mark.parametrize("lost", ["order", "answer"])
async def test_a_lost_answer_doubles_and_leaks_nothing(tmp_path: Path, lost: str) -> None:
    cloud = Cloud(answer_lost=lost == "answer", order_lost=lost == "order", unlisted=4)
    rig = PoolRig(tmp_path, cloud)
    rig.demand = ONE
    await rig.rounds(2)
    rig.demand = {}
    cloud.answer_lost = cloud.order_lost = False
    await rig.rounds(int(UNLISTED_S / INTERVAL) + 4)
    assert len(cloud.creates) == (lost == "answer")
    assert [each.record.stage for each in rig.fleet.live] == [Stage.JOINED] * (lost == "answer")


async def test_a_full_zone_pauses_and_another_zone_is_tried(tmp_path: Path) -> None:
    cloud = Cloud(full={("small", "a"), ("large", "a"), ("large", "b")})
    rig = PoolRig(tmp_path, cloud, demand_s=1.0, back_off_s=100.0)
    rig.demand = ONE
    await rig.rounds(3)
    assert {each.zone for each in cloud.machines} == {"b"}
    assert rig.pools.back_off.failures == 1
    cloud.full.add(("small", "b"))
    rig.demand = {"small": Demand(3, 3, "vision")}
    await rig.rounds(100)
    # In 1,000 s the pauses of a zone are 100, 200, 400 and 800 s, and three orders fail at a time.
    assert 12 <= rig.pools.back_off.failures <= 1 + 3 * 8


async def test_a_machine_that_never_joins_is_ended(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, join_s=300.0)
    rig.demand = ONE
    await rig.rounds(1)
    rig.demand = {}
    rig.cloud.change("i-0", token="corral-000000000000-m1")  # the pool lists it as another cluster's
    rig.cloud.unlisted = 2
    await rig.rounds(3)
    rig.cloud.change("i-0", token=rig.cloud.creates[0])
    for name in list(rig.nodes):
        rig.nodes[name].up = False
    for _ in range(40):
        rig.now += INTERVAL
        await rig.driver.run_round()
        await rig.pools.round()
        await rig.driver.runner.idle()
    assert rig.cloud.running == []
    assert rig.pools.back_off.failures == 1


async def test_an_interruption_drains_in_time_and_the_end_loses_the_jobs(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path)
    node = await rig.joined()
    hold(rig, node.name)
    rig.cloud.change("i-0", notice_at=rig.now + 120.0)
    await rig.round()
    assert node.timed_drain is not None
    assert node.timed_drain.empty_by == rig.now - INTERVAL + 115.0
    await rig.rounds(2)
    assert not node.drained  # a drain without a time would end the timed drain
    rig.cloud.change("i-0", state=MachineState.ENDED)
    await rig.rounds(2)
    assert (rig.lost, rig.removed) == ([node.name], [node.name])


async def test_a_machine_that_vanishes_is_gone_after_two_complete_looks(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path)
    node = await rig.joined()
    hold(rig, node.name)
    await rig.rounds(int(UNLISTED_S / INTERVAL))
    rig.cloud.complete = False
    kept, rig.cloud.machines = rig.cloud.machines, []
    await rig.rounds(10)
    assert rig.lost == []
    rig.cloud.complete, rig.cloud.machines = True, kept
    await rig.round()
    rig.cloud.machines = []
    await rig.rounds(2)
    assert rig.lost == []
    await rig.rounds(3)
    assert rig.lost == [node.name]


async def test_a_machine_whose_agent_is_connected_has_not_ended(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path)
    node = await rig.joined()
    hold(rig, node.name)
    rig.now += UNLISTED_S
    rig.cloud.machines = []
    for _ in range(10):
        rig.now += INTERVAL
        await rig.driver.run_round()
        await rig.pools.round()
    assert [each.record.stage for each in rig.fleet.live] == [Stage.JOINED]
    assert node.name in rig.nodes


async def test_a_drain_by_an_administrator_keeps_the_machine(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, idle_s=50.0)
    node = await rig.joined()
    node.drained, node.why = True, "ada looks at the disk"
    await rig.rounds(30)
    assert len(rig.cloud.running) == 1
    node.drained, node.why = False, ""
    await rig.rounds(12)
    assert rig.cloud.running == []


async def test_a_job_that_starts_before_the_drain_keeps_the_machine(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, idle_s=50.0)
    node = await rig.joined()
    while not rig.fleet.live[0].record.leaving:
        await rig.round()
    hold(rig, node.name)
    await rig.rounds(5)
    assert not node.drained
    assert len(rig.cloud.running) == 1


async def test_caps_stop_orders_and_drain_machines(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, daily_cap=2.0, demand_s=1.0)
    node = await rig.joined()
    hold(rig, node.name)
    rig.demand = {"small": Demand(3, 3, "vision")}
    await rig.rounds(5)
    assert len(rig.cloud.creates) == 1
    assert "daily cap" in rig.pools.out.refused
    rig.demand = {}
    await rig.rounds(800)
    assert node.drained
    assert "daily cap of 2 is reached" in node.why
    assert len(rig.cloud.running) == 1  # its job is not stopped
    node.held.clear()
    await rig.rounds(5)
    assert rig.cloud.running == []


async def test_the_cap_of_a_project_holds_for_its_machines_only(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path, project_caps={"vision": 0.5}, demand_s=1.0)
    rig.demand = ONE
    await rig.rounds(3)
    assert rig.cloud.creates == []
    assert "project vision" in rig.pools.out.refused
    rig.demand = {"small": Demand(1, 1, "speech")}
    await rig.rounds(3)
    assert len(rig.cloud.creates) >= 1


async def test_machines_without_a_record(tmp_path: Path) -> None:
    """One of another cluster, one of which the cluster has the node, and one that nothing needs."""
    rig = PoolRig(tmp_path, idle_s=1e6)
    node = await rig.joined()
    known = Machine("i-9", f"{PREFIX}m1", MachineState.RUNNING, "10.0.0.9", "small", "a")
    rig.cloud.machines += [
        replace(known, ref="i-7", token="corral-aaaaaaaaaaaa-m1"),
        known,
        replace(known, ref="i-8", token=f"{PREFIX}m2"),
    ]
    rig.nodes["burst-m1"] = replace(node, name="burst-m1", held={})
    await rig.rounds(2)
    assert rig.cloud.ends == []
    await rig.rounds(5)
    assert rig.cloud.ends == ["i-8"]
    assert {each.record.ref for each in rig.fleet.live} == {"i-0", "i-9"}


async def test_a_controller_that_may_not_act_orders_and_ends_nothing(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path)
    rig.demand, rig.acts = ONE, False
    await rig.rounds(5)
    assert rig.cloud.calls == 0


@pytest.mark.parametrize("kill_at", range(4))
async def test_a_kill_at_each_step_leaks_and_doubles_nothing(tmp_path: Path, kill_at: int) -> None:
    """Steps 0 and 1 are before and after the effect of create(), and 2 and 3 those of end()."""
    cloud = Cloud(kill_at=kill_at)
    rig = PoolRig(tmp_path, cloud, idle_s=50.0)
    rig.demand = ONE
    killed = False
    for _ in range(60):
        await rig.round()
        if cloud.calls > kill_at and not killed:
            killed = True
            await rig.restart()
        if cloud.creates:
            rig.demand = {}
    assert killed
    assert cloud.running == []
    assert Counter(cloud.creates).most_common(1)[0][1] == 1
    assert cloud.most_at_once == 1
    assert rig.nodes == {}
    assert rig.fleet.live == []


async def test_the_secret_of_a_record_is_deleted_when_the_order_is_accepted(tmp_path: Path) -> None:
    rig = PoolRig(tmp_path)
    rig.pools.engine.pool.__class__.makes_host_keys = True
    try:
        await rig.restart()
        rig.demand = ONE
        await rig.rounds(2)
    finally:
        rig.pools.engine.pool.__class__.makes_host_keys = False
    [machine] = rig.fleet.live
    assert machine.record.host_key.startswith("ssh-ed25519 ")
    [path] = tmp_path.glob("machines/*.json")
    assert "PRIVATE KEY" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
