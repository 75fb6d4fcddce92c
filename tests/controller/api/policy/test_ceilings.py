"""Users cannot raise their own ceilings: real users at a running controller."""

from __future__ import annotations

import time
from typing import Any

from tests import users
from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.server.test_identity import visit

PREEMPTING = {
    "strategies": ["priority"],
    "min_runtime_s": 0.0,
    "cooldown_s": 0.0,
    "grace_s": 0.0,
}


def submit(**asked: Any) -> tuple[str, str, Any]:
    return "POST", "/v1/jobs", {"spec": {"command": ["true"], **asked}}


async def test_user_cannot_preempt_others_by_raising_a_priority() -> None:
    with users.made("ada", "eve") as [ada, eve]:
        async with start_controller(preemption=PREEMPTING) as api:
            await api.join("gpu01")
            ((status, answer),) = await visit(api, ada.pw_uid, submit(gpus=8))
            assert status == 201
            victim = answer["ids"][0]
            await api.started(victim)
            tries = [
                submit(gpus=8, priority=100),
                submit(gpus=8, priority=51),
                submit(gpus=8, priority=100, array="0-3"),
                submit(preemptible=False),
                submit(min_runtime_s=3e8),
                submit(gpus=8),
            ]
            answers = await visit(api, eve.pw_uid, *tries)
            assert [status for status, _ in answers] == [403] * 5 + [201]
            assert answers[0][1]["where"] == "spec.priority"
            mine = answers[-1][1]["ids"][0]
            edits = [
                ("POST", f"/v1/jobs/{mine}/set", {"changes": {"priority": 100}}),
                ("POST", f"/v1/jobs/{mine}/set", {"changes": {"priority": 40}}),
                (
                    "POST",
                    "/v1/jobs/orders",
                    {"action": "set", "jobs": [str(mine)], "changes": {"priority": 99}},
                ),
                ("POST", "/v1/what-if", {"submit": [{"command": ["true"], "priority": 100, "gpus": 8}]}),
            ]
            answers = await visit(api, eve.pw_uid, *edits)
            assert [status for status, _ in answers] == [403, 200, 200, 200]
            assert answers[2][1]["done"] == []
            assert "at most NORMAL" in answers[3][1]["refused"][0]
            assert api.daemon.state.jobs[victim].preemptions == ()
            assert api.daemon.state.jobs[victim].stopping is None


async def test_no_user_passes_others_by_a_deadline_of_his_own_making() -> None:
    due = time.time() + 3_600.0
    with users.made("ada", "eve", "ops") as [ada, eve, ops]:
        access = {"operators": [ops.pw_name], "limits": {"users": {ada.pw_name: {"deadline": True}}}}
        for deadlines, status in (("lift", 403), ("guard", 201)):
            async with start_controller(backfill={"deadlines": deadlines}, access=access) as api:
                tries = [
                    submit(deadline_at=due, time_limit_s=60.0),
                    submit(deadline_at=due, time_limit_s=60.0, array="0-3"),
                ]
                answers = await visit(api, eve.pw_uid, *tries, submit(name="mine", hold=True))
                assert [each for each, _ in answers] == [status, status, 201]
                job = answers[-1][1]["ids"][0]
                changes = ("POST", f"/v1/jobs/{job}/set", {"changes": {"deadline_at": due}})
                ((edited, _),) = await visit(api, eve.pw_uid, changes)
                assert edited == (403 if status == 403 else 200)
                for uid in (ada.pw_uid, ops.pw_uid):
                    ((allowed, _),) = await visit(api, uid, tries[0])
                    assert allowed == 201
                ((given, _),) = await visit(api, ops.pw_uid, changes)
                assert given == 200


async def test_no_user_keeps_his_place_for_a_day_after_he_is_preempted() -> None:
    saves = {"checkpoint_signal": "USR1", "grace_s": 600.0}
    with users.made("eve") as [eve]:
        async with start_controller() as api:
            answers = await visit(
                api,
                eve.pw_uid,
                submit(checkpoint_s=86_400.0, **saves),
                submit(checkpoint_s=3_000.0, **saves),
                submit(checkpoint_s=86_400.0),  # it cannot save, so the time is never given
                ("POST", "/v1/jobs/1/set", {"changes": {"checkpoint_s": 3_001.0}}),
            )
            assert [status for status, _ in answers] == [403, 201, 201, 403]
            assert answers[0][1]["where"] == "spec.checkpoint_s"


async def test_dependency_raises_no_job_above_the_ceiling_of_the_dependent_job() -> None:
    with users.made("ada", "eve") as [ada, eve]:
        async with start_controller() as api:
            ((_, answer),) = await visit(api, ada.pw_uid, submit(priority=10))
            low = answer["ids"][0]
            after = [{"until": "ok", "job": str(low)}]
            answers = await visit(
                api, eve.pw_uid, submit(priority=100, after=after), submit(priority=50, after=after)
            )
            assert [status for status, _ in answers] == [403, 201]
            status, shown = await api.get(f"/v1/jobs/{low}")
            assert (status, shown["job"]["priority"]) == (200, 50)


async def test_only_members_submit_to_a_project() -> None:
    with users.made("ada", "eve", "ops") as [ada, eve, ops]:
        sections = {
            "access": {
                "operators": [ops.pw_name],
                "limits": {"projects": {"prod": {"priority": "HIGH"}}, "operators": {"priority": 80}},
            },
            "projects": {"prod": {"members": [ada.pw_name]}, "open": {}},
        }
        async with start_controller(**sections) as api:

            async def asked(uid: int, *tries: tuple[str, str, Any]) -> list[int]:
                return [status for status, _ in await visit(api, uid, *tries)]

            assert await asked(
                eve.pw_uid,
                submit(project="prod"),
                submit(project="open"),
                submit(),
                ("POST", "/v1/jobs/2/set", {"changes": {"project": "prod"}}),
            ) == [403, 201, 201, 403]
            assert await asked(
                ada.pw_uid,
                submit(project="prod", priority=75),
                submit(project="prod", priority=76),
                submit(priority=75),
                ("POST", "/v1/jobs/3/set", {"changes": {"project": "default"}}),
            ) == [201, 403, 403, 403]
            for_eve = (
                "POST",
                "/v1/jobs",
                {"spec": {"command": ["true"], "priority": 80}, "as_user": eve.pw_name},
            )
            above = (
                "POST",
                "/v1/jobs",
                {"spec": {"command": ["true"], "priority": 81}, "as_user": eve.pw_name},
            )
            assert await asked(ops.pw_uid, submit(project="prod"), for_eve, above) == [201, 201, 403]
            assert (await api.post(*submit(project="prod", priority=100)[1:]))[0] == 201  # root
            for uid in (eve.pw_uid, ops.pw_uid, 0):
                ((status, answer),) = await visit(api, uid, submit(project="invented"))
                usable = "default, open" if uid == eve.pw_uid else "default, open, prod"
                assert (status, answer["where"]) == (400, "spec.project")
                assert answer["hint"].startswith(f"You may use: {usable}. ")


async def test_limits_above_requests_count_against_quotas() -> None:
    quota = {"users": {"*": {"memory": "4G", "cpus": 4}}}
    async with start_controller(quota=quota) as api:
        await api.join("gpu01")
        status, problem = await api.post(
            "/v1/jobs", {"spec": {"command": ["true"], "memory_mib": 1, "memory_limit_mib": 1 << 20}}
        )
        assert (status, problem["code"]) == (403, "over_quota")
        assert "memory" in problem["message"]
        first = await api.submit(memory_mib=1024, memory_limit_mib=3 * 1024)
        second = await api.submit(memory_mib=1024, memory_limit_mib=2 * 1024)
        third = await api.submit(memory_mib=1024)
        await api.placed(first)
        await api.placed(third)
        assert await used(api) == 4 * 1024
        assert not api.daemon.state.jobs[second].members
        await api.started(first)
        await api.ended(first)
        await api.placed(second)
        assert await used(api) == 3 * 1024


async def used(api: RunningController) -> int:
    """MiB that root holds, as the quotas count them."""
    _, answer = await api.get("/v1/quotas")
    [mine] = [each for each in answer["quotas"] if (each["scope"], each["name"]) == ("user", "root")]
    found: int = mine["used"]["memory_mib"]
    return found


async def test_user_cannot_release_a_job_that_an_operator_holds() -> None:
    """All routes refuse the release, a what-if refuses it too, and explain names the operator."""
    with users.made("ada", "ops") as [ada, ops]:
        async with start_controller(access={"operators": [ops.pw_name]}) as api:

            async def post(uid: int, path: str, body: Any = None) -> tuple[int, Any]:
                ((status, answer),) = await visit(api, uid, ("POST", path, body))
                return status, answer

            assert (await visit(api, ada.pw_uid, submit()))[0][0] == 201
            assert (await post(ada.pw_uid, "/v1/jobs/1/hold"))[0] == 200
            assert (await post(ada.pw_uid, "/v1/jobs/1/release"))[0] == 200
            assert (await post(ops.pw_uid, "/v1/jobs/1/hold"))[0] == 200
            status, answer = await post(ada.pw_uid, "/v1/jobs/1/release")
            held = f"only operators may release job 1: operator {ops.pw_name} holds it"
            assert (status, answer["code"], answer["message"]) == (403, "not_allowed", held)
            order = {"action": "release", "jobs": ["1"]}
            status, answer = await post(ada.pw_uid, "/v1/jobs/orders", order)
            assert (answer["done"], answer["refused"][0]["problem"]["message"]) == ([], held)
            status, answer = await post(ada.pw_uid, "/v1/what-if", {"release": [1]})
            assert held in answer["refused"][0]
            ((status, shown),) = await visit(api, ada.pw_uid, ("GET", "/v1/jobs/1", None))
            assert shown["why"]["sentence"].startswith(f"held by operator {ops.pw_name}: only an operator")
            assert (await post(ops.pw_uid, "/v1/jobs/1/release"))[0] == 200
            assert not api.daemon.state.jobs[1].held
