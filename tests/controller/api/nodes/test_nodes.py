"""Nodes and the cluster through the API."""

from __future__ import annotations

import asyncio

import pytest

from controller.core.model.inputs import agent_inputs
from tests.controller.api.running_controller import RunningController
from tests.limits import PATIENCE_S
from wire.agent.reports import AttemptStatus, GpuChecked, GpuReport, GpuSample
from wire.names import TroubleKind


async def test_nodes_by_name_with_gpus_and_holders(api: RunningController) -> None:
    await api.join("gpu02", gpus=4, labels={"zone": "b"})
    await api.join("gpu01", gpus=0)
    job = await api.submit(gpus=2)
    share = await api.submit(gpus=0.25)
    await api.placed(share)
    _, listed = await api.get("/v1/nodes")
    assert [node["name"] for node in listed["nodes"]] == ["gpu01", "gpu02"]
    assert listed["seq"] == api.daemon.seq
    status, node = await api.get("/v1/nodes/gpu02")
    assert status == 200
    assert node == listed["nodes"][1]
    assert (node["state"], node["labels"], node["jobs"]) == ("up", {"zone": "b"}, [job, share])
    assert [gpu["jobs"] for gpu in node["gpus"]] == [[job], [job], [share], []]
    assert [gpu["free_milli"] for gpu in node["gpus"]] == [0, 0, 750, 1000]
    assert node["cpu_free_milli"] == 64_000 - 28_000 - 3_000


async def test_lost_gpu_has_no_free_share_and_a_reason(api: RunningController) -> None:
    await api.join("gpu01", gpus=2)
    await api.handle(agent_inputs.GpuTroubled("gpu01", "GPU-gpu01-1", TroubleKind.XID, xid=79))
    _, node = await api.get("/v1/nodes/gpu01")
    sick = node["gpus"][1]
    assert (sick["health"], sick["free_milli"]) == ("lost", 0)
    assert sick["why"] == "Xid 79: fallen off the bus; needs a reboot"


async def test_single_gpu_is_cordoned_and_resumed(api: RunningController) -> None:
    await api.join("gpu01", gpus=2)
    status, node = await api.post("/v1/nodes/gpu01/gpus/1/cordon", {"why": "noisy"})
    assert (status, [gpu["health"] for gpu in node["gpus"]]) == (200, ["ok", "cordoned"])
    assert node["gpus"][1]["why"] == "noisy; until it is resumed"
    status, node = await api.post("/v1/nodes/gpu01/gpus/1/resume")
    assert (status, node["gpus"][1]["health"]) == (200, "probing")
    api.daemon.agents.on_frame("gpu01", GpuChecked("GPU-gpu01-1", True))
    assert (await api.post("/v1/nodes/gpu01/gpus/1/resume"))[0] == 409
    for path in ("gpu01/gpus/7/cordon", "gpu01/gpus/x/cordon", "gpu09/gpus/0/resume"):
        assert (await api.post(f"/v1/nodes/{path}", {}))[0] == 404


async def test_readings_of_an_away_node_are_not_shown(api: RunningController) -> None:
    await api.join("gpu01", gpus=1)
    api.daemon.agents.on_frame("gpu01", GpuReport((GpuSample("GPU-gpu01-0", 93, 70_000, 650, 71),)))
    _, node = await api.get("/v1/nodes/gpu01")
    assert (node["gpus"][0]["utilisation"], node["gpus"][0]["power_w"]) == (93, 650)
    await api.handle(agent_inputs.LinkWentDown("gpu01", "cable"))
    _, node = await api.get("/v1/nodes/gpu01")
    assert (node["state"], node["why"], node["gpus"][0]["utilisation"]) == ("suspect", "cable", 0)


async def test_gpu_idle_time_begins_with_its_job_and_ends_with_load(api: RunningController) -> None:
    await api.join("gpu01", gpus=2)

    async def idle() -> list[float | None]:
        return [gpu["idle_since"] for gpu in (await api.get("/v1/nodes/gpu01"))[1]["gpus"]]

    for index in (0, 1):
        api.daemon.agents.on_frame("gpu01", GpuReport((GpuSample(f"GPU-gpu01-{index}", 0),)))
    assert await idle() == [None, None], "nobody holds them"
    job = await api.submit(gpus=1)
    await api.placed(job)
    await api.handle(agent_inputs.AgentReported("gpu01", AttemptStatus(job, 1, 9, 1.0)))
    assert await idle() == [api.daemon.state.jobs[job].started_at, None]
    api.daemon.agents.on_frame("gpu01", GpuReport((GpuSample("GPU-gpu01-0", 60),)))
    async with asyncio.timeout(PATIENCE_S):  # because the mean follows the readings
        while await idle() != [None, None]:
            pass
        api.daemon.agents.on_frame("gpu01", GpuReport((GpuSample("GPU-gpu01-0", 1),)))
        while await idle() == [None, None]:
            pass
    await api.handle(agent_inputs.LinkWentDown("gpu01", "cable"))
    assert await idle() == [None, None], "nobody knows"


async def test_drain_with_a_time_names_the_jobs_and_what_happens_to_them(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    moved = await api.submit(gpus=1, name="free")
    ended = await api.submit(gpus=1, preemptible=False)
    short = await api.submit(gpus=1, time_limit_s=600)
    await api.placed(short)
    by = api.daemon.now() + 3_600
    fates = {moved: "moved", ended: "ended", short: "ends"}
    before = api.daemon.seq
    _, tried = await api.post("/v1/nodes/gpu01/drain", {"empty_by": by, "dry_run": True})
    assert {each["job"]: each["how"] for each in tried["drain"]["jobs"]} == fates
    _, answer = await api.post("/v1/what-if", {"drain": ["gpu01"], "drain_by": by})
    assert {each["job"]: each["how"] for each in answer["leaving"]} == {moved: "moved", ended: "ended"}
    assert api.daemon.seq == before
    status, node = await api.post("/v1/nodes/gpu01/drain", {"why": "fan", "empty_by": by})
    assert (status, node["state"], node["drain"]["why"]) == (200, "up", "fan")
    assert {each["job"]: each["how"] for each in node["drain"]["jobs"]} == fates
    _, reservations = await api.get("/v1/reservations")
    assert reservations["reservations"] == []
    for dry_run in (True, False):
        status, problem = await api.post("/v1/nodes/gpu01/drain", {"empty_by": 5.0, "dry_run": dry_run})
        assert (status, problem["where"]) == (400, "empty_by")
    _, node = await api.post("/v1/nodes/gpu01/resume", {})
    assert node["drain"] is None


async def test_drain_and_resume(api: RunningController) -> None:
    await api.join("gpu01")
    status, node = await api.post("/v1/nodes/gpu01/drain", {"why": "new fans"})
    assert (status, node["state"], node["why"]) == (200, "drained", "new fans")
    waiting = await api.submit()
    status, shown = await api.get(f"/v1/jobs/{waiting}")
    assert shown["job"]["state"] == "QUEUED"
    status, node = await api.post("/v1/nodes/gpu01/resume")
    assert (status, node["state"]) == (200, "up")
    assert await api.placed(waiting) == ["gpu01"]
    status, problem = await api.post("/v1/nodes/gpu01/resume", {})
    assert (status, problem["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("body", "where", "expected"),
    [
        ({"why": 3}, "why", "must be a string"),
        ({"reason": "x"}, "reason", "is not a field"),
        ({"why": "x" * 501}, "why", "at most 500"),
    ],
)
async def test_invalid_drain_is_refused_and_drains_nothing(
    api: RunningController, body: object, where: str, expected: str
) -> None:
    await api.join("gpu01")
    status, problem = await api.post("/v1/nodes/gpu01/drain", body)
    assert (status, problem["where"]) == (400, where)
    assert expected in problem["message"]
    assert (await api.get("/v1/nodes/gpu01"))[1]["state"] == "up"


async def test_unknown_node_is_not_found(api: RunningController) -> None:
    assert (await api.get("/v1/nodes/nope"))[0] == 404
    for action in ("drain", "resume"):
        status, problem = await api.post(f"/v1/nodes/nope%1b/{action}", {})
        assert (status, problem["code"]) == (404, "not_found")
        assert problem["message"].isprintable()


async def test_cluster_summary(api: RunningController) -> None:
    _, empty = await api.get("/v1/cluster")
    assert (empty["gpus"], empty["nodes"], empty["jobs"]["QUEUED"]) == (
        0,
        {"up": 0, "drained": 0, "suspect": 0, "down": 0},
        0,
    )
    await api.join("a", gpus=4, cpus=8)
    await api.join("b", gpus=4, cpus=8)
    await api.placed(await api.submit(gpus=2.0, cpu_milli=3_000))
    await api.placed(await api.submit(gpus=0.5))
    await api.submit(hold=True)
    await api.post("/v1/nodes/b/drain", {})
    _, seen = await api.get("/v1/cluster")
    assert (seen["gpus"], seen["gpus_used"], seen["cpu_milli"], seen["cpu_used_milli"]) == (
        8,
        2.5,
        16_000,
        3_900,
    )
    assert seen["nodes"] == {"up": 1, "drained": 1, "suspect": 0, "down": 0}
    assert (seen["jobs"]["SCHEDULED"], seen["jobs"]["QUEUED"]) == (2, 1)
    assert seen["seq"] == api.daemon.seq


async def test_health_shows_the_role_of_the_caller(api: RunningController) -> None:
    status, health = await api.get("/v1/health")
    assert (status, health["status"], health["role"]) == (200, "ok", "admin")
    assert health["seq"] == api.daemon.seq


HOST = {"ssh": "somebody@127.0.0.1:1"}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"name": "a b", "host": HOST}, "name"),
        ({"name": "a"}, "host"),
        ({"name": "a", "host": {"ssh": "-oProxyCommand=reboot"}}, "host.ssh"),
        ({"name": "a", "host": {**HOST, "python": "python3; reboot"}}, "host.python"),
        ({"name": "a", "host": {**HOST, "spool": "relative"}}, "host.spool"),
        ({"name": "a", "host": {**HOST, "labels": {"": "x"}}}, "host.labels"),
        ({"name": "a", "host": HOST, "host_key": "no key"}, "host_key"),
    ],
)
async def test_invalid_hosts_are_refused(api: RunningController, body: dict[str, object], where: str) -> None:
    status, problem = await api.post("/v1/nodes", body)
    assert (status, problem["where"]) == (400, where)
    assert (await api.get("/v1/nodes"))[1]["nodes"] == []


async def test_unreachable_host_is_added_as_down_with_a_reason(api: RunningController) -> None:
    status, looked = await api.post("/v1/preflight", {"name": "a", "host": HOST})
    assert (status, looked["ready"]) == (200, False)
    assert looked["checks"][0]["found"] == "nothing listens on the SSH port"
    status, node = await api.post("/v1/nodes", {"name": "a", "host": HOST})
    assert (status, node["state"]) == (201, "down")
    await api.until(lambda: api.daemon.state.nodes.by_name["a"].why == "nothing listens on the SSH port")
    status, problem = await api.post("/v1/nodes/a/trust", {"host_key": "no key"})
    assert (status, problem["where"]) == (400, "host_key")
    assert (await api.post("/v1/nodes/a/remove", {}))[0] == 200
    assert (await api.get("/v1/nodes"))[1]["nodes"] == []
