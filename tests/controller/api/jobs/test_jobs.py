"""Jobs through the API: every route, and everything that is wrong with a submit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.store.scratch import scratch


async def test_submit_is_on_disk_before_the_answer(api: RunningController) -> None:
    status, answer = await api.post("/v1/jobs", {"spec": {"command": ["python", "train.py"], "gpus": 0.5}})
    assert (status, answer) == (201, {"ids": [1], "label": "1", "notes": []})
    row = await api.daemon.read(lambda: api.daemon.store.job(1))
    assert row is not None
    assert row.state == "QUEUED"


async def test_array_submit_makes_many_jobs_in_one_answer(api: RunningController) -> None:
    status, answer = await api.post("/v1/jobs", {"spec": {"command": ["true"], "array": "1,3,7"}})
    assert (status, answer) == (201, {"ids": [1, 2, 3], "label": "1", "notes": []})
    status, shown = await api.get("/v1/jobs/1_3")
    assert (status, shown["job"]["id"], shown["job"]["label"]) == (200, 2, "1_3")


async def test_job_view_has_spec_and_waiting_reason(api: RunningController) -> None:
    job = await api.submit("sh", "-c", "x", gpus=4, env={"TOKEN": "secret"}, name="train")
    _, shown = await api.get(f"/v1/jobs/{job}")
    assert shown["spec"]["env"] == {"TOKEN": "secret"}
    assert shown["spec"]["command"] == ["sh", "-c", "x"]
    assert (shown["job"]["name"], shown["job"]["state"]) == ("train", "QUEUED")
    assert shown["why"]["reason"] == "no_nodes"
    assert shown["why"]["position"] == 1


async def test_running_job_view_shows_its_allocation(api: RunningController) -> None:
    await api.join("gpu01")
    job = await api.submit(gpus=2)
    await api.started(job)
    _, shown = await api.get(f"/v1/jobs/{job}")
    (held,) = shown["job"]["held"]
    assert (shown["job"]["state"], held["node"]) == ("RUNNING", "gpu01")
    assert [(gpu["index"], gpu["milli"]) for gpu in held["gpus"]] == [(0, 1000), (1, 1000)]
    await api.ended(job, code=3)
    _, shown = await api.get(f"/v1/jobs/{job}")
    assert (shown["job"]["state"], shown["job"]["exit_code"]) == ("FAILED", 3)


async def test_waiting_gang_shows_its_number_of_nodes(api: RunningController) -> None:
    await api.join("a")
    await api.join("b")
    job = await api.submit(gpus=16, hold=True)
    _, shown = await api.get(f"/v1/jobs/{job}")
    assert shown["job"]["nodes"] == 2


async def test_hold_release_and_cancel(api: RunningController) -> None:
    job = await api.submit()
    assert (await api.post(f"/v1/jobs/{job}/hold"))[1]["reason"] == "held"
    status, problem = await api.post(f"/v1/jobs/{job}/release")
    assert (status, problem["state"]) == (200, "QUEUED")
    status, problem = await api.post(f"/v1/jobs/{job}/release")
    assert (status, problem["code"], problem["where"]) == (409, "conflict", "job")
    assert (await api.post(f"/v1/jobs/{job}/cancel"))[1]["state"] == "CANCELLED"
    for action in ("cancel", "hold"):
        status, problem = await api.post(f"/v1/jobs/{job}/{action}")
        assert (status, problem["code"]) == (409, "conflict")


@pytest.mark.parametrize("action", ["", "/cancel", "/hold", "/release", "/logs"])
async def test_unknown_job_is_not_found(api: RunningController, action: str) -> None:
    await api.submit()
    ask = api.get if action in ("", "/logs") else api.post
    for label in ["7", "1_0", "x", "-1", "%00", "1_", "_1", "9" * 40, "..%2f..", "1%0a", "%ff"]:
        status, problem = await ask(f"/v1/jobs/{label}{action}")
        assert (label, status, problem["code"]) == (label, 404, "not_found")
        assert problem["message"].isprintable(), label


async def test_jobs_are_listed_page_by_page(api: RunningController) -> None:
    await api.post("/v1/jobs", {"spec": {"command": ["true"], "array": "0-24"}})
    for job in (3, 4):
        await api.post(f"/v1/jobs/{job}/cancel")
    seen: list[int] = []
    following: int | None = 0
    while following is not None:
        _, page = await api.get("/v1/jobs", after=following, limit=10)
        assert page["total"] == 25
        seen += [job["id"] for job in page["jobs"]]
        following = page["next"]
    assert seen == list(range(1, 26))
    _, page = await api.get("/v1/jobs", state="CANCELLED")
    assert ([job["id"] for job in page["jobs"]], page["next"]) == ([3, 4], None)
    assert page["seq"] == api.daemon.seq
    _, page = await api.ask("GET", "/v1/jobs?state=CANCELLED&state=QUEUED&user=nobody-here")
    assert page["jobs"] == []


async def test_full_last_page_has_no_next_page(api: RunningController) -> None:
    await api.post("/v1/jobs", {"spec": {"command": ["true"], "array": "1-10"}})
    _, page = await api.get("/v1/jobs", limit=10)
    assert (len(page["jobs"]), page["next"]) == (10, None)


async def test_old_ended_jobs_come_from_the_store() -> None:
    async with start_controller(controller={"keep_ended": 2}) as api:
        for _ in range(6):
            await api.post(f"/v1/jobs/{await api.submit(key=f'k{_}')}/cancel")
        waiting = await api.submit()
        _, page = await api.get("/v1/jobs")
        assert [job["id"] for job in page["jobs"]] == [5, 6, waiting]
        seen, following = [], 0
        while following is not None:
            _, page = await api.get("/v1/jobs", history=1, limit=3, after=following)
            seen += [(job["id"], job["state"]) for job in page["jobs"]]
            following = page["next"]
        assert seen == [(7, "QUEUED")] + [(job, "CANCELLED") for job in range(6, 0, -1)]
        _, page = await api.get("/v1/jobs", history=1, state="QUEUED")
        assert [job["id"] for job in page["jobs"]] == [7]
        _, shown = await api.get("/v1/jobs/1")
        assert shown["job"]["state"] == "CANCELLED"
        status, problem = await api.post("/v1/jobs/1/cancel")
        assert (status, problem["message"]) == (409, "job 1 is CANCELLED already")


async def test_job_may_depend_on_a_job_in_the_store() -> None:
    async with start_controller(controller={"keep_ended": 0}) as api:
        await api.join("gpu01")
        good, bad = await api.submit(), await api.submit()
        array = await api.submit(array="0-1")
        for job, code in ((good, 0), (bad, 3), (array, 0), (array + 1, 5)):
            await api.started(job)
            await api.ended(job, code)
        after = [{"until": "ok", "job": str(good)}, {"until": "not-ok", "job": str(array)}]
        await api.placed(await api.submit(after=after))
        for label in (bad, array, f"{array}_1"):
            spec = {"command": ["true"], "after": [{"until": "ok", "job": str(label)}]}
            status, problem = await api.post("/v1/jobs", {"spec": spec})
            assert (status, problem["where"]) == (400, "spec.after")
            assert f"job {label} can no longer succeed: it is FAILED" in problem["message"]


async def test_an_old_element_of_an_array_is_found_by_its_label() -> None:
    async with start_controller(controller={"keep_ended": 0}) as api:
        await api.post("/v1/jobs", {"spec": {"command": ["true"], "array": "5-6"}})
        assert (await api.post("/v1/jobs/1_6/cancel"))[1]["state"] == "CANCELLED"
        status, shown = await api.get("/v1/jobs/1_6")
        assert (status, shown["job"]["id"], shown["job"]["state"]) == (200, 2, "CANCELLED")
        assert (await api.get("/v1/jobs/1_7"))[0] == 404


GOOD: dict[str, Any] = {"command": ["true"]}

BROKEN: list[tuple[Any, int, str, str]] = [
    (b"", 400, "spec", "is missing"),
    (b"{", 400, "", "is not JSON"),
    (b"nonsense", 400, "", "is not JSON"),
    (b"\xff\xfe", 400, "", "is not JSON"),
    (b"[]", 400, "", "must be an object"),
    (b"[" * 100_000, 400, "", "is not JSON"),
    (b'{"spec":{"command":["\\ud800"]}}', 400, "", "is not JSON"),
    (b'{"spec":{"command":["\xed\xa0\x80"]}}', 400, "", "is not JSON"),
    (b'{"spec":{"command":["true"],"gpus":NaN}}', 400, "spec.gpus", "must be a whole number, or a share"),
    (b'{"spec":{"command":["true"],"gpus":1e999}}', 400, "spec.gpus", "must be a whole number, or a share"),
    (b'{"spec":{"command":["true"],"grace_s":Infinity}}', 400, "spec.grace_s", "must lie between"),
    (b'{"spec":{"command":["true"],"priority":' + b"9" * 5000 + b"}}", 400, "", "is not JSON"),
    ({"spec": GOOD, "colour": "red"}, 400, "colour", "is not a field"),
    ({"spec": {**GOOD, "gpuss": 1}}, 400, "spec.gpuss", "is not a field"),
    ({"spec": {}}, 400, "spec.command", "is missing"),
    ({"spec": {"command": []}}, 400, "spec.command", "must name a program"),
    ({"spec": {"command": "true"}}, 400, "spec.command", "must be a list"),
    ({"spec": {"command": ["true", 3]}}, 400, "spec.command[1]", "must be a string"),
    ({"spec": {"command": ["true\0"]}}, 400, "spec.command", "without NUL"),
    ({"spec": {**GOOD, "cpu_milli": "4"}}, 400, "spec.cpu_milli", "must be a whole number"),
    ({"spec": {**GOOD, "cpu_milli": 1.5}}, 400, "spec.cpu_milli", "must be a whole number"),
    ({"spec": {**GOOD, "cpu_milli": True}}, 400, "spec.cpu_milli", "must be a whole number"),
    ({"spec": {**GOOD, "cpu_milli": -1}}, 400, "spec.cpu_milli", "must be positive"),
    ({"spec": {**GOOD, "hold": 1}}, 400, "spec.hold", "must be true or false"),
    ({"spec": {**GOOD, "gpus": 1.5}}, 400, "spec.gpus", "must be a whole number, or a share"),
    ({"spec": {**GOOD, "gpus": 3, "nodes": 2}}, 400, "spec.gpus", "cannot be divided evenly"),
    ({"spec": {**GOOD, "env": {"A=B": "x"}}}, 400, "spec.env.A=B", "not a valid environment variable"),
    ({"spec": {**GOOD, "env": {"A": 1}}}, 400, "spec.env.A", "must be a string"),
    ({"spec": {**GOOD, "array": "9-1"}}, 400, "spec.array", "counts backwards"),
    ({"spec": {**GOOD, "array": "0-100000000"}}, 400, "spec.array", "more than 10000 elements"),
    ({"spec": {**GOOD, "workdir": "here"}}, 400, "spec.workdir", "must be an absolute path"),
    ({"spec": {**GOOD, "name": "n" * 201}}, 400, "spec.name", "at most 200"),
    ({"spec": GOOD, "key": "k" * 201}, 400, "key", "at most 200"),
    ({"spec": GOOD, "key": "a\nb"}, 400, "key", "must be printable"),
    ({"spec": GOOD, "as_user": "a b"}, 400, "as_user", "is not the name of a user"),
    ({"spec": {**GOOD, "gpus": 9, "nodes": 1}}, 422, "spec.gpus", "can never be placed"),
    ({"spec": {**GOOD, "nodes": 3}}, 422, "spec.nodes", "can never be placed"),
    ({"spec": {**GOOD, "gpu_models": ["V100"], "gpus": 1}}, 422, "", "can never be placed"),
    ({"spec": {**GOOD, "command": ["x" * 2_000_000]}}, 413, "", "is larger than"),
]


async def test_invalid_submit_is_refused_with_field_and_reason_and_records_nothing(
    api: RunningController,
) -> None:
    await api.join("gpu01")
    before = api.daemon.seq
    for body, expected, where, message in BROKEN:
        status, problem = await api.post("/v1/jobs", body)
        case = (str(body)[:80], problem)
        assert status == expected, case
        assert problem["where"] == where, case
        assert message in problem["message"], case
        assert set(problem) == {"code", "message", "where", "hint"}
    assert api.daemon.seq == before
    assert not api.daemon.state.jobs


async def test_misspelt_field_is_refused_with_the_nearest_name(api: RunningController) -> None:
    _, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "gpuss": 1}})
    assert problem["hint"] == "Did you mean 'gpus'?"


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=1&limit=2", "limit"),
        ("after=x", "after"),
        ("after=-1", "after"),
        ("after=" + "9" * 30, "after"),
        ("state=DONE", "state"),
        ("history=yes", "history"),
        ("colour=red", "colour"),
        ("user=%00", "user"),
    ],
)
async def test_invalid_queries_are_refused(api: RunningController, query: str, where: str) -> None:
    status, problem = await api.ask("GET", f"/v1/jobs?{query}")
    assert (status, problem["code"], problem["where"]) == (400, "invalid", where)


async def test_concurrent_submits_with_one_key_make_one_job(api: RunningController) -> None:
    async def one(number: int) -> tuple[int, ...]:
        body = {"spec": {"command": ["true"], "array": "0-1"}, "key": f"key-{number % 5}"}
        return tuple((await api.post("/v1/jobs", body))[1]["ids"])

    answers = await asyncio.gather(*(one(number) for number in range(60)))
    assert len(set(answers)) == 5
    assert len(api.daemon.state.jobs) == 10


async def test_concurrent_submits_each_get_their_own_job(api: RunningController) -> None:
    jobs = await asyncio.gather(*(api.submit() for _ in range(200)))
    assert sorted(jobs) == list(range(1, 201))


async def test_concurrent_changes_of_one_job_are_all_answered(api: RunningController) -> None:
    job = await api.submit()
    asked = [api.post(f"/v1/jobs/{job}/{action}") for action in ("hold", "release", "cancel") * 20]
    answers = await asyncio.gather(*asked)
    assert {status for status, _ in answers} <= {200, 409}
    _, shown = await api.get(f"/v1/jobs/{job}")
    assert shown["job"]["state"] == "CANCELLED"
    assert sum(answer.get("state") == "CANCELLED" for _, answer in answers) >= 1


HOSTILE = [
    "[red]x[/]",
    "\x1b[2J",
    "$(reboot)",
    "../../etc/passwd",
    "'; DROP TABLE jobs; --",
    "\u202egnp.exe",
    "a\nb",
    "😈",
]


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_are_escaped(api: RunningController, name: str) -> None:
    job = await api.submit(
        name, "--flag", name=name, project=name, queue=name, env={"X": name}, selector={name: name}
    )
    _, shown = await api.get(f"/v1/jobs/{job}")
    assert [shown["job"][field] for field in ("name", "project", "queue")] == [name] * 3
    assert shown["spec"]["env"] == {"X": name}
    _, events = await api.get("/v1/events")
    assert all(event["text"].isprintable() for event in events["events"])
    _, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], name: 1}})
    assert problem["message"].isprintable()
    assert json.dumps(problem)


async def test_edit_is_on_disk_before_the_answer_and_survives_a_restart() -> None:
    with scratch() as home:
        async with start_controller(home) as api:
            first, job = await api.submit(hold=True), await api.submit(name="old")
            changes = {"name": "new", "priority": 75, "after": [{"until": "ok", "job": str(first)}]}
            status, shown = await api.post(f"/v1/jobs/{job}/set", {"changes": changes})
            assert (status, shown["name"], shown["priority"], shown["reason"]) == (
                200,
                "new",
                75,
                "dependency",
            )
            status, problem = await api.post(f"/v1/jobs/{job}/set", {"changes": {"gpus": -1}})
            assert (status, problem["where"]) == (400, "gpus")
            after = [{"until": "ok", "job": str(job)}]
            status, problem = await api.post(f"/v1/jobs/{first}/set", {"changes": {"after": after}})
            assert f"{first} → {job} → {first}" in problem["message"]
        async with start_controller(home) as api:
            _, shown = await api.get(f"/v1/jobs/{job}")
            assert (shown["job"]["name"], shown["spec"]["priority"]) == ("new", 75)
            assert shown["why"]["sentence"] == f"waits for job {first} to succeed (queued)"


async def test_submission_key_is_known_after_its_jobs_left_memory_and_after_a_restart(tmp_path: Path) -> None:
    few = {"keep_ended": 2}
    body = {"spec": {"command": ["true"], "array": "0-1"}, "key": "nightly"}
    async with start_controller(tmp_path, controller=few) as api:
        await api.join("gpu01")
        _, first = await api.post("/v1/jobs", body)
        for job in first["ids"]:
            await api.ended(job)
        for number in range(3):
            await api.ended(await api.submit(key=f"later-{number}"))
        assert not {*first["ids"]} & {*api.daemon.state.jobs}
        _, again = await api.post("/v1/jobs", body)
        assert again == first
    async with start_controller(tmp_path, controller=few) as api:
        assert (await api.post("/v1/jobs", body))[1] == first
        assert (await api.post("/v1/jobs", {**body, "key": "other"}))[1]["ids"] != first["ids"]


async def test_listing_has_the_places_of_waiting_jobs() -> None:
    async with start_controller() as api:
        await api.join("gpu01")
        await api.placed(await api.submit(gpus=8, time_limit_s=600))
        low = await api.submit(gpus=8, priority=25, time_limit_s=600)
        first, held = await api.submit(gpus=8, time_limit_s=600), await api.submit(hold=True)
        array = await api.submit(array="0-1", gpus=8, time_limit_s=600)
        await api.daemon.expected_times.fresh()
        query = [("places", "1"), ("folded", "1")]
        seen = (await api.ask("GET", "/v1/jobs", params=query))[1]
        places = {each["job"]: (each["place"], each["starts_at"]) for each in seen["places"]}
        assert {job: place for job, (place, _) in places.items()} == {first: 1, low: 4}
        assert held not in places
        (group,) = seen["groups"]
        assert (group["id"], group["place"]) == (array, 2)
        now = api.daemon.now()
        assert places[first][1] - now < group["starts_at"] - now < places[low][1] - now
        assert (await api.ask("GET", "/v1/jobs", params=[("folded", "1")]))[1]["places"] == []
