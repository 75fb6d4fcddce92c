"""Permissions by the user that the kernel reports for the other end of the socket."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import stat
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import users
from tests.controller.api.running_controller import Answer, RunningController, start_controller

CLIENT_AS_USER = Path(__file__).with_name("client_as_user.py")
NAMELESS = 54_321

as_root = users.as_other_users


def some_user(besides: str = "") -> pwd.struct_passwd:
    """A real user of this machine that is not us."""
    return next(
        user for user in pwd.getpwall() if user.pw_uid not in (0, os.geteuid()) and user.pw_name != besides
    )


async def visit(
    api: RunningController, uid: int, *questions: tuple[str, str, Any], scope: str = ""
) -> list[Answer]:
    """The answers that another user gets. `scope` is the value of the header Corral-Scope."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLIENT_AS_USER),
        str(uid),
        str(api.socket),
        *([scope] if scope else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(json.dumps(questions).encode())
    return [(status, answer) for status, answer in json.loads(said)]


SPEC = {"command": ["sh", "-c", "secret"], "env": {"TOKEN": "hush"}, "hold": True}


@as_root
async def test_users_see_all_jobs_and_change_their_own(api: RunningController) -> None:
    user, other = some_user(), some_user(besides=some_user().pw_name)
    mine = await api.submit()
    (submitted, health) = await visit(
        api, user.pw_uid, ("POST", "/v1/jobs", {"spec": SPEC}), ("GET", "/v1/health", None)
    )
    assert submitted == (201, {"ids": [2], "label": "2", "notes": []})
    assert (health[1]["user"], health[1]["role"]) == (user.pw_name, "user")

    listed, shown, own = await visit(
        api,
        user.pw_uid,
        ("GET", "/v1/jobs", None),
        ("GET", "/v1/jobs/2", None),
        ("POST", "/v1/jobs/2/release", None),
    )
    assert [(job["id"], job["user"]) for job in listed[1]["jobs"]] == [(mine, "root"), (2, user.pw_name)]
    assert shown[1]["spec"]["env"] == {"TOKEN": "hush"}
    assert own[0] == 200

    for what in ("cancel", "hold", "release"):
        ((status, problem),) = await visit(api, other.pw_uid, ("POST", f"/v1/jobs/2/{what}", None))
        assert (status, problem["code"]) == (403, "not_allowed")
        assert problem["message"] == f"only {user.pw_name} and operators may {what} job 2"
    status, answer = (
        await visit(api, other.pw_uid, ("POST", "/v1/jobs/orders", {"action": "cancel", "jobs": ["2"]}))
    )[0]
    assert (status, answer["done"]) == (200, [])
    assert answer["refused"][0]["problem"]["message"] == f"only {user.pw_name} and operators may cancel job 2"
    logs, foreign, drain = await visit(
        api,
        other.pw_uid,
        ("GET", "/v1/jobs/2/logs", None),
        ("GET", "/v1/jobs/2", None),
        ("POST", "/v1/nodes/x/drain", {}),
    )
    assert logs[0] == 403
    assert (foreign[1]["spec"]["env"], foreign[1]["spec"]["command"]) == ({}, ["sh"])
    assert (drain[0], drain[1]["message"]) == (403, "only operators may drain nodes")
    assert "[access] operators" in drain[1]["hint"]
    host = {"name": "x", "host": {"ssh": "127.0.0.1:1", "identity": "/etc/shadow"}}
    refused = await visit(
        api,
        other.pw_uid,
        ("POST", "/v1/preflight", host),
        ("POST", "/v1/nodes", host),
        ("POST", "/v1/nodes/x/trust", {"host_key": ""}),
        ("POST", "/v1/nodes/x/remove", {}),
        ("POST", "/v1/what-if", {"config": {"text": ""}}),
        ("POST", "/v1/rebalance/run", {}),
    )
    assert [status for status, _ in refused] == [403] * 6


@as_root
async def test_only_operators_submit_for_another_user(api: RunningController) -> None:
    ((status, problem),) = await visit(
        api, some_user().pw_uid, ("POST", "/v1/jobs", {"spec": SPEC, "as_user": "root"})
    )
    assert (status, problem["where"]) == (403, "as_user")
    assert (await api.post("/v1/jobs", {"spec": SPEC, "as_user": "ada"}))[0] == 201
    assert api.daemon.state.jobs[1].user == "ada"


@as_root
async def test_operator_changes_jobs_of_users_but_cannot_become_root() -> None:
    user = some_user()
    async with start_controller(access={"operators": [user.pw_name]}) as api:
        await api.join("gpu01")
        status, submitted = await api.post(
            "/v1/jobs", {"spec": {"command": ["true"], "env": {"A": "b"}}, "as_user": "ada"}
        )
        assert status == 201
        job = submitted["label"]
        answers = await visit(
            api,
            user.pw_uid,
            ("GET", "/v1/health", None),
            ("GET", f"/v1/jobs/{job}", None),
            ("POST", f"/v1/jobs/{job}/cancel", None),
            ("POST", "/v1/nodes/gpu01/drain", {"why": "x"}),
            ("POST", "/v1/jobs", {"spec": SPEC, "as_user": "ada"}),
            ("POST", "/v1/jobs", {"spec": SPEC, "as_user": "root"}),
        )
        assert answers[0][1]["role"] == "operator"
        assert answers[1][1]["spec"]["env"] == {"A": "b"}
        assert [status for status, _ in answers[2:]] == [200, 200, 201, 403]
        assert answers[5][1]["message"] == "only admins may submit as root"


@as_root
async def test_viewers_may_only_view() -> None:
    async with start_controller(access={"others": "view"}) as api:
        await api.submit()
        answers = await visit(
            api,
            some_user().pw_uid,
            ("GET", "/v1/jobs", None),
            ("GET", "/v1/health", None),
            ("POST", "/v1/jobs", {"spec": SPEC}),
            ("POST", "/v1/jobs/1/cancel", None),
        )
        assert [status for status, _ in answers] == [200, 200, 403, 403]
        assert answers[1][1]["role"] == "viewer"


@as_root
async def test_user_without_a_name_is_known_by_uid(api: RunningController) -> None:
    submitted, shown = await visit(
        api, NAMELESS, ("POST", "/v1/jobs", {"spec": SPEC}), ("GET", "/v1/jobs/1", None)
    )
    assert submitted[0] == 201
    assert shown[1]["job"]["user"] == f"uid:{NAMELESS}"
    assert shown[1]["spec"]["env"] == {"TOKEN": "hush"}


@as_root
async def test_one_user_cannot_take_all_connections() -> None:
    async with start_controller(api={"max_connections": 4}) as api:
        user = some_user()
        held = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import os, socket, sys\n"
            f"os.setuid({user.pw_uid})\n"
            "lines = [socket.socket(socket.AF_UNIX) for _ in range(3)]\n"
            f"for line in lines: line.connect({str(api.socket)!r})\n"
            "lines[2].sendall(b'GET /v1/health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
            "print(lines[2].recv(4096).decode(), flush=True)\n"
            "sys.stdin.read()\n",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert held.stdout is not None
        assert held.stdin is not None
        assert b" 503 " in await held.stdout.readline()
        assert (await api.get("/v1/health"))[0] == 200
        held.stdin.close()
        await held.wait()


async def test_tcp_requires_the_token_and_grants_the_role_of_the_controller() -> None:
    async with start_controller(api={"listen": "127.0.0.1:0"}) as api:
        path = api.daemon.config.state_dir / "token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        token = path.read_text().strip()
        url = f"{api.server.tcp_url}/v1/health"
        async with aiohttp.ClientSession() as session:
            for given in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": token},
                {"Authorization": "Bearer "},
                {"Authorization": "Bearer ß\udcff"},
            ):
                async with session.get(url, headers=given) as response:
                    assert response.status == 401
                    assert response.headers["WWW-Authenticate"] == "Bearer"
                    assert token not in await response.text()
            async with session.get(url, headers={"Authorization": f"Bearer {token}"}) as response:
                health = await response.json()
        assert (health["user"], health["role"]) == (pwd.getpwuid(os.geteuid()).pw_name, "admin")


async def test_read_token_lets_read_and_refuses_every_change() -> None:
    async with start_controller(api={"listen": "127.0.0.1:0"}) as api:
        path = api.daemon.config.state_dir / "token.read"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        reading = path.read_text().strip()
        assert reading != (api.daemon.config.state_dir / "token").read_text().strip()
        # The header cannot give the right that the token lacks.
        headers = {"Authorization": f"Bearer {reading}", "Corral-Scope": "write"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{api.server.tcp_url}/v1/jobs") as response:
                assert response.status == 200
            async with session.post(f"{api.server.tcp_url}/v1/jobs", json={"spec": SPEC}) as response:
                assert response.status == 403
                assert (await response.json())["message"] == "this session is read-only and may not submit"
        assert not api.daemon.state.jobs


async def test_unknown_scope_is_refused(api: RunningController) -> None:
    [(status, problem)] = await visit(api, os.geteuid(), ("GET", "/v1/jobs", None), scope="all")
    assert (status, problem["where"]) == (400, "Corral-Scope")


async def test_token_survives_a_restart(tmp_path: Path) -> None:
    async with start_controller(tmp_path, api={"listen": "127.0.0.1:0"}):
        first = (tmp_path / "token").read_text()
    async with start_controller(tmp_path, api={"listen": "127.0.0.1:0"}):
        assert (tmp_path / "token").read_text() == first


@pytest.mark.parametrize(
    ("text", "mode"), [("", 0o600), ("short", 0o600), ("x" * 40, 0o644), ("ß" * 40, 0o600)]
)
async def test_weak_token_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)
    with pytest.raises(OSError, match="at least 16 ASCII characters"):
        async with start_controller(tmp_path, api={"listen": "127.0.0.1:0"}):
            pass


async def test_no_token_exists_without_tcp(api: RunningController) -> None:
    assert api.server.tcp_url == ""
    assert not (api.daemon.config.state_dir / "token").exists()
