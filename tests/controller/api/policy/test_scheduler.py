"""The scheduler over HTTP: its policy, passes on request, topology, and quotas that are read again."""

from __future__ import annotations

from pathlib import Path

from controller.config import Config, load
from controller.reload import ConfigReload
from tests.controller.api.running_controller import RunningController, start_controller


async def test_scheduler_shows_its_policy_and_counts() -> None:
    async with start_controller(scheduler={"order": "fifo", "backfill": "conservative"}) as api:
        await api.join("gpu01", gpus=1)
        await api.placed(await api.submit(gpus=1))
        await api.submit(gpus=1)
        await api.submit(gpus=1, hold=True)
        status, shown = await api.get("/v1/scheduler")
    assert status == 200
    assert (shown["order"], shown["backfill"], shown["quota_provider"]) == (
        "fifo",
        "conservative",
        "unlimited",
    )
    assert (shown["running"], shown["waiting"], shown["not_ready"]) == (1, 1, 1)
    assert shown["policy"]["order"] == "fifo"
    assert shown["passes"] >= 1
    assert shown["last_pass"]["seconds"] > 0
    assert shown["profiles"] == []


async def test_a_pass_on_request_places_the_job_that_waits_for_it(api: RunningController) -> None:
    await api.join("gpu01", gpus=1)
    first = await api.submit(gpus=1)
    await api.placed(first)
    await api.submit(gpus=1)
    status, answer = await api.post("/v1/scheduler/trigger")
    assert (status, answer["scheduled"], answer["remaining"]) == (200, 0, 1)
    api.daemon._cycles.earliest = float("inf")  # No pass runs by itself from now on.
    await api.started(first)
    await api.ended(first)
    status, answer = await api.post("/v1/scheduler/trigger")
    assert (status, answer["scheduled"], answer["remaining"]) == (200, 1, 0)
    assert answer["seq"] == api.daemon.seq
    assert (await api.get("/v1/scheduler"))[1]["last_pass"]["placed"] == 1


async def test_topology_shows_switches_numa_nodes_and_links() -> None:
    topology = {"switches": {"rack1": "gpu[01-02]", "spine": {"switches": "rack1"}}}
    async with start_controller(topology=topology) as api:
        for name in ("gpu01", "gpu02"):
            await api.join(name, gpus=2)
        _, shown = await api.get("/v1/topology")
        known = {gpu.index: gpu for gpu in api.daemon.state.nodes.by_name["gpu01"].facts.gpus}
    both = ["gpu01", "gpu02"]
    assert shown["switches"] == [
        {"name": "spine", "above": "", "nodes": both},
        {"name": "rack1", "above": "spine", "nodes": both},
    ]
    assert [each["name"] for each in shown["nodes"]] == both
    assert shown["nodes"][0]["switches"] == ["spine", "rack1"]
    for gpu in shown["nodes"][0]["gpus"]:
        assert gpu["links"] == list(known[gpu["index"]].links)
        assert gpu["numa"] == known[gpu["index"]].numa


async def test_one_quota_is_shown_and_patched(api: RunningController) -> None:
    status, view = await api.ask("PATCH", "/v1/quotas/project/a", data=b'{"quota": {"hard": {"gpus": 3}}}')
    assert (status, view["quota"]["hard"]["gpus"]) == (200, 3)
    assert await api.get("/v1/quotas/project/a") == (200, view)
    status, problem = await api.get("/v1/quotas/team/a")
    assert (status, problem["where"]) == (400, "scope")


async def test_sync_applies_changed_quotas_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.toml"

    def write(gpus: int, order: str = "priority") -> Config:
        text = f'[quota.users.ada]\ngpus = {gpus}\n[scheduler]\norder = "{order}"\n'
        file.write_text(f'[controller]\nstate_dir = "{tmp_path}"\nsocket = "{tmp_path}/c.sock"\n{text}')
        return load(file)

    async with start_controller() as api:
        # The controller of the test reads no file, so tell it which one is its own.
        api.daemon.config = write(2)
        reload = ConfigReload(api.daemon)
        api.server._reload = reload
        await reload.apply(None, "root")
        assert (await api.post("/v1/quotas/sync"))[1]["changes"] == []
        write(5)
        status, answer = await api.post("/v1/quotas/sync")
        assert (status, answer["provider"]) == (200, "local")
        assert [each["key"] for each in answer["changes"]] == ["quota.users.ada.gpus"]
        assert api.daemon.state.quotas.quota(("user", "ada")).hard.gpus == 5
        write(6, "fifo")
        status, problem = await api.post("/v1/quotas/sync")
        assert (status, problem["code"]) == (409, "conflict")
        assert "[scheduler]" in problem["message"]
        assert api.daemon.state.quotas.quota(("user", "ada")).hard.gpus == 5
        file.write_text("[quota]\nprovider = 7\n")
        assert (await api.post("/v1/quotas/sync"))[0] == 409


async def test_a_reservation_is_deleted(api: RunningController) -> None:
    await api.join("gpu01")
    at = api.daemon.now() + 3_600
    spec = {"name": "class", "starts_at": at, "duration_s": 3_600.0, "nodes": ["gpu01"], "users": ["ada"]}
    status, made = await api.post("/v1/reservations", {"reservation": spec})
    assert status == 201, made
    assert await api.ask("DELETE", "/v1/reservations/class") == (200, made)
    assert (await api.ask("DELETE", "/v1/reservations/class"))[0] == 404
