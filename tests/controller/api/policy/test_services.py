"""Services over HTTP: replicas with their jobs, restart and scale, reasons and metrics."""

from __future__ import annotations

from tests.controller.api.running_controller import start_controller
from tests.controller.api.service.test_metrics import figures

WEB = {"user": "ada", "command": ["serve"], "gpus": 4, "replicas": 2, "ready_after_s": 0.0}


async def test_a_service_is_shown_with_its_replicas_and_scaled() -> None:
    async with start_controller(services={"web": WEB}) as api:
        await api.join("gpu01")
        await api.until(lambda: len(api.daemon.state.replicas.get("web", ())) == 2)
        for job in sorted(api.daemon.state.replicas["web"]):
            await api.started(job)
        status, body = await api.get("/v1/services")
        assert status == 200
        (web,) = body["services"]
        assert (web["name"], web["wanted"], web["ready"], web["problem"]) == ("web", 2, 2, "")
        assert [(each["number"], each["nodes"], each["current"]) for each in web["replicas"]] == [
            (0, ["gpu01"], True),
            (1, ["gpu01"], True),
        ]
        job = web["replicas"][0]["job"]
        assert (await api.get(f"/v1/jobs/{job}"))[1]["job"]["service"] == "web"
        found = await figures(api)
        assert found['corral_service_replicas_wanted{service="web"}'] == 2
        assert found['corral_service_replicas_ready{service="web"}'] == 2
        status, scaled = await api.post("/v1/services/web/scale", {"replicas": 1})
        assert (status, scaled["wanted"], scaled["declared"]) == (200, 1, 2)
        status, problem = await api.post("/v1/services/web/scale", {"replicas": -1})
        assert (status, problem["where"]) == (400, "replicas")
        assert (await api.post("/v1/services/web/restart"))[0] == 200
        assert (await api.post("/v1/services/wbe/restart"))[0] == 404
        assert (await api.get("/v1/services/wbe"))[0] == 404


async def test_the_problem_of_a_service_names_the_queue_once() -> None:
    rule = {"online": {"users": ["eve"]}}
    async with start_controller(services={"web": {**WEB, "queue": "online"}}, queues=rule) as api:
        await api.join("gpu01")
        (web,) = (await api.get("/v1/services"))[1]["services"]
        assert web["problem"] == "queue 'online' is not for user 'ada'"


async def test_a_service_that_fits_on_no_node_has_a_problem_and_its_job_names_the_service() -> None:
    async with start_controller(services={"web": WEB, "large": {**WEB, "gpus": 64, "nodes": 1}}) as api:
        await api.join("gpu01", gpus=4)
        await api.until(lambda: len(api.daemon.state.replicas.get("web", ())) == 2)
        large, web = (await api.get("/v1/services"))[1]["services"]
        assert (web["problem"], large["replicas"]) == ("", [])
        assert large["problem"].startswith("gpus: can never be placed: it needs 1 node with 64 GPUs")
        waiting = max(api.daemon.state.replicas["web"])
        why = (await api.get(f"/v1/jobs/{waiting}/explain"))[1]
        assert why["why"]["sentence"].startswith("replica 1 of service web: needs 1 node")
