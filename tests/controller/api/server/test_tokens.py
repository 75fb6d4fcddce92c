"""API tokens: their text, their limits, and the end of open streams after a revocation."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.access import token_text
from controller.access.token_text import Mistyped
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import access_inputs
from controller.core.model.tokens import FORGET_S, TokenRecord
from controller.nodes.local import LocalLink
from tests import users
from tests.controller.api.running_controller import Answer, RunningController, start_controller
from tests.engine_harness import EngineHarness
from tests.limits import PATIENCE_S
from wire.api.service.access import ABILITIES
from wire.cluster.hosts import HostSpec
from wire.names import JobState

OWN = pwd.getpwuid(os.geteuid()).pw_name

OIDC = {"issuer": "https://login.example.org", "client_id": "corral"}


@pytest.fixture
async def lab() -> AsyncIterator[RunningController]:
    """A controller with the project vision, a robot, and a TCP port."""
    robots = {"ci": {"user": "ada", "projects": ["vision"], "can": ["read", "submit", "change"]}}
    async with start_controller(
        access={"robots": robots}, projects={"vision": {}, "speech": {}}, api={"listen": "127.0.0.1:0"}
    ) as api:
        await api.join("gpu01")
        yield api


async def make(api: RunningController, *can: str, **more: Any) -> tuple[str, str]:
    """The id and the text of a new token."""
    status, made = await api.post("/v1/tokens", {"name": "t", "can": can or ["read"], **more})
    assert status == 201, made
    return made["token"]["id"], made["text"]


async def ask(api: RunningController, token: str, method: str, path: str, body: Any = None) -> Answer:
    """The answer to a request over TCP with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    data = None if body is None else json.dumps(body)
    async with (
        aiohttp.ClientSession(api.server.tcp_url, headers=headers) as session,
        session.request(method, path, data=data) as response,
    ):
        return response.status, json.loads(await response.read())


def test_text_of_a_token_shows_typing_mistakes() -> None:
    made = token_text.new_token("user")
    assert token_text.id_in(made.text) == made.id
    assert token_text.is_text_of(made.text, made.digest)
    assert token_text.id_in("an-old-token") is None
    other = "a" if made.text[20] != "a" else "b"
    for wrong in (made.text[:-1], made.text[:20] + other + made.text[21:], "corral_admin_x_y_z", "corral_"):
        with pytest.raises(Mistyped):
            token_text.id_in(wrong)


async def test_token_has_only_its_abilities_and_no_more_than_its_user(lab: RunningController) -> None:
    _, reader = await make(lab, "read")
    _, submitter = await make(lab, "read", "submit")
    job = {"spec": {"command": ["true"], "hold": True}}
    assert (await ask(lab, reader, "GET", "/v1/jobs"))[0] == 200
    assert (await ask(lab, reader, "POST", "/v1/jobs", job))[0] == 403
    assert (await ask(lab, submitter, "POST", "/v1/jobs", job))[0] == 201
    # The token of the controller's user that can submit is not an admin.
    refused = [
        {"spec": {"command": ["true"], "priority": 100}},
        {"spec": {"command": ["true"]}, "as_user": "ada"},
    ]
    assert [(await ask(lab, submitter, "POST", "/v1/jobs", body))[0] for body in refused] == [403, 403]
    assert (await ask(lab, submitter, "POST", "/v1/jobs/1/cancel"))[0] == 403
    assert (await ask(lab, submitter, "POST", "/v1/tokens", {"name": "x", "can": ["read"]}))[0] == 403
    status, me = await ask(lab, submitter, "GET", "/v1/whoami")
    assert (status, me["user"], me["role"], me["can"]) == (200, OWN, "user", ["read", "submit"])
    listed = (await lab.get("/v1/tokens"))[1]["tokens"]
    assert [each["used_from"] for each in listed] == ["127.0.0.1", "127.0.0.1"]
    stored = json.dumps(await lab.get("/v1/tokens")) + json.dumps(await lab.get("/v1/events"))
    secret = submitter.split("_")[3]
    assert secret not in stored
    assert token_text.digest_of(submitter) not in stored


@users.as_other_users
async def test_user_gives_no_token_more_than_the_user_has() -> None:
    from tests.controller.api.server.test_identity import visit

    with users.made("ada", "bo") as [ada, bo]:
        async with start_controller() as api:
            own = await api.post("/v1/tokens", {"name": "mine", "can": ["admin"]})
            bodies = (
                {"name": "t", "can": ["operate"]},
                {"name": "t", "can": ["read", "admin"]},
                {"name": "t", "user": "root"},
                {"name": "t", "robot": "ci"},
                {"name": "t", "days": 400.0},
                {"name": "t", "can": ["submit"]},
            )
            said = await visit(
                api,
                ada.pw_uid,
                *(("POST", "/v1/tokens", body) for body in bodies),
                ("GET", "/v1/tokens", None),
            )
            assert [status for status, _ in said] == [403, 403, 403, 403, 400, 201, 200]
            assert [each["id"] for each in said[6][1]["tokens"]] == [said[5][1]["token"]["id"]]
            others = [own[1]["token"]["id"], said[5][1]["token"]["id"]]
            gone = await visit(
                api, bo.pw_uid, *(("POST", f"/v1/tokens/{each}/revoke", None) for each in others)
            )
            assert [status for status, _ in gone] == [404, 404]
            (_, events), *_ = await visit(api, bo.pw_uid, ("GET", "/v1/events", None))
            assert events["events"] == []
            (_, events), *_ = await visit(api, ada.pw_uid, ("GET", "/v1/events", None))
            assert [each["data"]["token"]["user"] for each in events["events"]] == [ada.pw_name]
            assert len((await api.get("/v1/events"))[1]["events"]) == 2


async def test_token_of_a_project_concerns_no_other_project(lab: RunningController) -> None:
    _, token = await make(lab, "read", "submit", "change", "operate", projects=["vision"])
    submit = ("POST", "/v1/jobs")
    held = {"command": ["true"], "hold": True}
    other = await lab.submit(hold=True, project="speech")
    assert (await ask(lab, token, *submit, {"spec": {**held, "project": "speech"}}))[0] == 403
    assert (await ask(lab, token, *submit, {"spec": held}))[0] == 403
    status, mine = await ask(lab, token, *submit, {"spec": {**held, "project": "vision"}})
    assert status == 201
    assert (await ask(lab, token, "POST", f"/v1/jobs/{other}/cancel"))[0] == 403
    path = f"/v1/jobs/{mine['label']}"
    assert (await ask(lab, token, "POST", f"{path}/set", {"changes": {"project": "speech"}}))[0] == 403
    assert (await ask(lab, token, "POST", "/v1/nodes/gpu01/drain", {"why": "x"}))[0] == 403
    dependent = await lab.submit(project="speech", after=[{"until": "ok", "job": mine["label"]}])
    status, refused = await ask(lab, token, "POST", f"{path}/cancel")
    assert (status, f"job {dependent} of project speech" in refused["message"]) == (403, True)
    status, answer = await ask(lab, token, "POST", "/v1/jobs/orders", {"action": "cancel", "jobs": ["all"]})
    assert (status, answer["done"]) == (200, [])
    assert not any(job.state.terminal for job in lab.daemon.state.jobs.values())
    assert (await lab.post(f"/v1/jobs/{dependent}/cancel"))[0] == 200
    assert (await ask(lab, token, "POST", f"{path}/cancel"))[0] == 200


async def test_robot_is_limited_by_its_table(lab: RunningController) -> None:
    _, token = await make(lab, "read", "submit", "exec", robot="ci")
    status, me = await ask(lab, token, "GET", "/v1/whoami")
    assert status == 200
    assert (me["robot"], me["user"], me["can"], me["projects"]) == (
        "ci",
        "ada",
        ["read", "submit"],
        ["vision"],
    )
    spec = {"command": ["true"], "hold": True}
    assert (await ask(lab, token, "POST", "/v1/jobs", {"spec": {**spec, "project": "vision"}}))[0] == 201
    assert lab.daemon.state.jobs[1].user == "ada"
    lab.daemon.config = lab.daemon.config.model_copy(
        update={"access": lab.daemon.config.access.model_copy(update={"robots": {}})}
    )
    assert (await ask(lab, token, "GET", "/v1/whoami"))[0] == 401


async def test_revocation_and_expiry_end_open_streams(lab: RunningController) -> None:
    """The stream ends although no event is sent on it, and other streams go on."""
    gone, first = await make(lab, "read")
    short, second = await make(lab, "read", days=10.0)
    _, third = await make(lab, "read")
    async with aiohttp.ClientSession(lab.server.tcp_url) as session:
        open_ones = [
            await session.get("/v1/stream", headers={"Authorization": f"Bearer {each}"})
            for each in (first, second, third)
        ]
        assert [each.status for each in open_ones] == [200] * 3
        assert (await lab.post(f"/v1/tokens/{gone}/revoke"))[0] == 200
        assert await ends(open_ones[0])
        assert (await ask(lab, first, "GET", "/v1/jobs"))[0] == 401
        record = lab.daemon.state.tokens.by_id[short]
        lab.daemon.state.tokens.by_id[short] = type(record)(
            *(record.id, record.kind, record.name, record.user, record.digest, record.can, record.made_at),
            record.by,
            expires_at=lab.daemon.now(),
        )
        assert await ends(open_ones[1])
        job = await lab.submit(hold=True)
        async with asyncio.timeout(PATIENCE_S):
            while f'"job":{job}' not in (await open_ones[2].content.readline()).decode():
                pass


async def test_reload_takes_rights_from_open_sessions_and_streams(tmp_path: Path) -> None:
    """Ada is an operator. She follows the output of Bo's job, and runs a command in the job."""
    async with start_controller(
        access={"operators": ["ada"], "oidc": OIDC},
        projects={"vision": {}},
        api={"listen": "127.0.0.1:0"},
    ) as api:
        api.daemon.agents.open(
            LocalLink("here", HostSpec("", spool=str(tmp_path / "spool"), gpus="none", run_as_self=True))
        )
        spec = {"command": ["sh", "-c", "echo first; exec sleep 12345"]}
        assert (await api.post("/v1/jobs", {"spec": spec, "as_user": "bo"}))[0] == 201
        await api.until(lambda: api.daemon.state.jobs[1].state is JobState.RUNNING)
        made = token_text.new_token("session")
        record = TokenRecord(
            *(made.id, "session", "laptop", "ada", made.digest, ABILITIES, 0.0, "ada"), role="operator"
        )
        await api.handle(access_inputs.CreateToken(record))
        assert (await ask(api, made.text, "GET", "/v1/whoami"))[1]["role"] == "operator"
        assert (await ask(api, made.text, "POST", "/v1/jobs/1/set", {"changes": {"name": "a"}}))[0] == 200
        opened, shell = await ask(api, made.text, "POST", "/v1/jobs/1/shells", {"command": ["cat"]})
        assert opened == 201, shell
        headers = {"Authorization": f"Bearer {made.text}"}
        async with aiohttp.ClientSession(api.server.tcp_url, headers=headers) as session:
            log = await session.get("/v1/jobs/1/logs", params={"follow": 1})
            assert await log.content.readline() == b"first\n"
            said = await session.get(f"/v1/shells/{shell['shell']}")
            given = f"/v1/shells/{shell['shell']}/input", {"data": "aGkK"}
            assert (await ask(api, made.text, "POST", *given))[0] == 200
            assert b"aGkK" in await said.content.readline()
            access = api.daemon.config.access.model_copy(update={"operators": []})
            api.daemon.config = api.daemon.config.model_copy(update={"access": access})
            assert (await ask(api, made.text, "GET", "/v1/whoami"))[1]["role"] == "user"
            assert (await ask(api, made.text, "POST", "/v1/jobs/1/set", {"changes": {"name": "b"}}))[0] == 403
            assert (await ask(api, made.text, "POST", *given))[0] == 403
            assert await ends(log)
            assert await ends(said)
        assert (await api.post("/v1/jobs/1/cancel"))[0] == 200
        await api.until(lambda: api.daemon.state.jobs[1].state.terminal)


async def ends(stream: aiohttp.ClientResponse) -> bool:
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await stream.content.readany():
                pass
        except aiohttp.ClientError:
            pass
    return True


async def test_tokens_survive_a_restart_as_hashes(tmp_path: Path) -> None:
    async with start_controller(tmp_path, api={"listen": "127.0.0.1:0"}) as api:
        id, text = await make(api, "read")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    async with start_controller(tmp_path, api={"listen": "127.0.0.1:0"}) as api:
        assert (await ask(api, text, "GET", "/v1/jobs"))[0] == 200
        cut, unknown = text[:-1], token_text.new_token("user").text
        said = [
            (await ask(api, each, "GET", "/v1/jobs")) for each in (cut, unknown, text.replace(id, "a" * 10))
        ]
        assert [status for status, _ in said] == [401] * 3
        assert said[0][1]["message"] == "the token has a typing mistake or is not complete"
        assert said[1][1]["message"] == "the token is wrong or revoked"


def test_expired_tokens_are_removed_by_a_later_one() -> None:
    harness = EngineHarness()
    old = TokenRecord("old", "user", "t", "ada", "00", ("read",), 0.0, "ada", expires_at=1.0)
    harness.tell(access_inputs.CreateToken(old))
    harness.now = FORGET_S + harness.now + 2.0
    harness.tell(access_inputs.CreateToken(replace(old, id="new", expires_at=None), 1))
    assert list(harness.state.tokens.by_id) == ["new"]
    full = harness.tell(access_inputs.CreateToken(replace(old, id="third", expires_at=None), 1))
    assert isinstance(full.reply, Refusal)
