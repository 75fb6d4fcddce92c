"""The attacks of docs/security.md: each is tried on a running controller."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests import users
from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.server.test_identity import visit

PAGE = Path(__file__).parents[4] / "docs" / "security.md"
BEGIN, END = (
    "<!-- attacks: written by tests/controller/api/server/test_attacks.py -->",
    "<!-- end of attacks -->",
)

NO_TOKEN, READER, SUBMITTER, VISION, ROBOT = (
    "client without a valid token",
    "token of root that can read",
    "token of root that can read and submit",
    "operator token for project vision",
    "robot",
)
EVE, OPS, LEAD = "user eve", "operator", "operator of project vision"


@dataclass(frozen=True)
class Attack:
    """A request that must be refused. In paths and bodies, {name} stands for an object of the setting."""

    by: str
    title: str
    method: str
    path: str
    body: Any = None
    status: int = 403
    headers: Mapping[str, str] = field(default_factory=dict)


def _submit(**spec: Any) -> dict[str, Any]:
    return {"spec": {"command": ["true"], "hold": True, **spec}}


def _host(**fields: Any) -> dict[str, Any]:
    return {"name": "h1", "host": {"ssh": "127.0.0.1:1", **fields}}


def _bearer(text: str) -> dict[str, str]:
    return {"Authorization": text}


PROLOG = {"text": "[jobs]\nprolog = ['/tmp/mine']\n"}
ATTACKS = (
    Attack(NO_TOKEN, "list jobs", "GET", "/v1/jobs", status=401),
    Attack(NO_TOKEN, "an empty token", "GET", "/v1/jobs", status=401, headers=_bearer("Bearer ")),
    Attack(NO_TOKEN, "another scheme", "GET", "/v1/jobs", status=401, headers=_bearer("Basic {reader}")),
    Attack(
        NO_TOKEN,
        "the id of a token with another secret",
        "GET",
        "/v1/jobs",
        status=401,
        headers=_bearer("Bearer {forged}"),
    ),
    Attack(
        NO_TOKEN,
        "a token without its last character",
        "GET",
        "/v1/jobs",
        status=401,
        headers=_bearer("Bearer {cut}"),
    ),
    Attack(
        NO_TOKEN,
        "a token whose kind was changed to robot",
        "GET",
        "/v1/jobs",
        status=401,
        headers=_bearer("Bearer {other_kind}"),
    ),
    Attack(NO_TOKEN, "a revoked token", "GET", "/v1/jobs", status=401, headers=_bearer("Bearer {revoked}")),
    Attack(NO_TOKEN, "a token in the query", "GET", "/v1/jobs?token={reader}", status=401),
    Attack(
        NO_TOKEN,
        "a token in a cookie",
        "GET",
        "/v1/jobs",
        status=401,
        headers={"Cookie": "Authorization={reader}"},
    ),
    Attack(
        NO_TOKEN,
        "the name of a user in a header",
        "GET",
        "/v1/jobs",
        status=401,
        headers={"X-Remote-User": "root"},
    ),
    Attack(NO_TOKEN, "another method on the public route", "POST", "/v1/ca", {}, status=401),
    Attack(NO_TOKEN, "a path below the public route", "GET", "/v1/ca/..%2ftokens", status=401),
    Attack(NO_TOKEN, "metrics", "GET", "/metrics", status=401),
    Attack(NO_TOKEN, "the event stream", "GET", "/v1/stream", status=401),
    Attack(NO_TOKEN, "find out which routes exist", "GET", "/v1/nothing", status=401),
    Attack(READER, "submit", "POST", "/v1/jobs", _submit()),
    Attack(READER, "read the output of a job", "GET", "/v1/jobs/{root}/logs"),
    Attack(READER, "cancel", "POST", "/v1/jobs/{root}/cancel"),
    Attack(
        READER,
        "cancel, with a header that asks for more",
        "POST",
        "/v1/jobs/{root}/cancel",
        headers={"Corral-Scope": "write"},
    ),
    Attack(READER, "create a token", "POST", "/v1/tokens", {"name": "t", "can": ["read"]}),
    Attack(READER, "list tokens", "GET", "/v1/tokens"),
    Attack(READER, "revoke another token", "POST", "/v1/tokens/{submitter_id}/revoke"),
    Attack(READER, "read the audit log", "GET", "/v1/audit"),
    Attack(READER, "read the keys of the configuration", "GET", "/v1/config/keys"),
    Attack(READER, "apply a configuration", "POST", "/v1/config", PROLOG),
    Attack(SUBMITTER, "priority above the ceiling of users", "POST", "/v1/jobs", _submit(priority=100)),
    Attack(SUBMITTER, "a job that cannot be preempted", "POST", "/v1/jobs", _submit(preemptible=False)),
    Attack(SUBMITTER, "submit as another user", "POST", "/v1/jobs", {**_submit(), "as_user": "ada"}),
    Attack(
        SUBMITTER, "run a command in a job of root", "POST", "/v1/jobs/{root}/shells", {"command": ["id"]}
    ),
    Attack(SUBMITTER, "change many jobs", "POST", "/v1/jobs/orders", {"action": "cancel", "jobs": ["all"]}),
    Attack(VISION, "submit to another project", "POST", "/v1/jobs", _submit(project="speech")),
    Attack(VISION, "submit without a project", "POST", "/v1/jobs", _submit()),
    Attack(
        VISION,
        "a workload with a task of another project",
        "POST",
        "/v1/workloads",
        {"spec": {"name": "w", "tasks": [{"name": "a", "spec": {"command": ["true"], "project": "speech"}}]}},
    ),
    Attack(
        VISION,
        "move a job to another project",
        "POST",
        "/v1/jobs/{vision}/set",
        {"changes": {"project": "speech"}},
    ),
    Attack(VISION, "cancel a job of another project", "POST", "/v1/jobs/{speech}/cancel"),
    Attack(VISION, "preempt a job of another project", "POST", "/v1/jobs/{speech}/preempt", {}),
    Attack(
        VISION, "cancel a job on which a job of another project depends", "POST", "/v1/jobs/{vision}/cancel"
    ),
    Attack(VISION, "drain a node", "POST", "/v1/nodes/gpu01/drain", {"why": "x"}),
    Attack(VISION, "change a quota", "POST", "/v1/quotas/user/eve/set", {"quota": {"hard": {"gpus": 9}}}),
    Attack(
        ROBOT,
        "submit to a project that its table does not name",
        "POST",
        "/v1/jobs",
        _submit(project="speech"),
    ),
    Attack(ROBOT, "an ability that its table does not have", "POST", "/v1/jobs/{vision}/cancel"),
    Attack(ROBOT, "create a token", "POST", "/v1/tokens", {"name": "t", "can": ["read"]}),
    Attack(EVE, "a token with a right of operators", "POST", "/v1/tokens", {"name": "t", "can": ["operate"]}),
    Attack(EVE, "a token for root", "POST", "/v1/tokens", {"name": "t", "user": "root"}),
    Attack(EVE, "a token for a robot", "POST", "/v1/tokens", {"name": "t", "robot": "ci"}),
    Attack(EVE, "a token that is valid for ever", "POST", "/v1/tokens", {"name": "t", "days": 1e9}, 400),
    Attack(EVE, "revoke a token of root", "POST", "/v1/tokens/{submitter_id}/revoke", status=404),
    Attack(EVE, "cancel a job of another user", "POST", "/v1/jobs/{speech}/cancel"),
    Attack(EVE, "read the output of another user", "GET", "/v1/jobs/{speech}/logs"),
    Attack(EVE, "search the output of another user", "GET", "/v1/jobs/{speech}/logs/search?text=a"),
    Attack(
        EVE, "run a command in a job of another user", "POST", "/v1/jobs/{speech}/shells", {"command": ["id"]}
    ),
    Attack(
        EVE,
        "change the command of another user's job",
        "POST",
        "/v1/jobs/{speech}/set",
        {"changes": {"command": ["id"]}},
    ),
    Attack(EVE, "preempt a job of another user", "POST", "/v1/jobs/{speech}/preempt", {}),
    Attack(EVE, "submit as root", "POST", "/v1/jobs", {**_submit(), "as_user": "root"}),
    Attack(EVE, "weight of a share", "POST", "/v1/shares", {"share": "default", "weight": 9}),
    Attack(EVE, "the audit log", "GET", "/v1/audit"),
    Attack(EVE, "verify the store", "GET", "/v1/store/verify"),
    Attack(OPS, "submit as root", "POST", "/v1/jobs", {**_submit(), "as_user": "root"}),
    Attack(
        OPS,
        "change the command of a job of root",
        "POST",
        "/v1/jobs/{root}/set",
        {"changes": {"command": ["id"]}},
    ),
    Attack(OPS, "run a command in a job of root", "POST", "/v1/jobs/{root}/shells", {"command": ["id"]}),
    Attack(OPS, "release a job of root", "POST", "/v1/jobs/{root}/release"),
    Attack(
        OPS, "a host with a Python program of his own", "POST", "/v1/preflight", _host(python="/tmp/python")
    ),
    Attack(
        OPS,
        "a host with a key of the controller",
        "POST",
        "/v1/nodes",
        _host(identity="/etc/ssh/ssh_host_key"),
    ),
    Attack(OPS, "a host whose jobs run as the agent's user", "POST", "/v1/nodes", _host(run_as_self=True)),
    Attack(OPS, "a configuration with a prolog of his own", "POST", "/v1/config", PROLOG),
    Attack(OPS, "a token with the rights of an admin", "POST", "/v1/tokens", {"name": "t", "can": ["admin"]}),
    Attack(OPS, "a token for root", "POST", "/v1/tokens", {"name": "t", "user": "root"}),
    Attack(OPS, "the audit log", "GET", "/v1/audit"),
    Attack(
        LEAD,
        "change the command of a job of the project",
        "POST",
        "/v1/jobs/{vision}/set",
        {"changes": {"command": ["id"]}},
    ),
    Attack(
        LEAD, "run a command in a job of the project", "POST", "/v1/jobs/{vision}/shells", {"command": ["id"]}
    ),
    Attack(LEAD, "read the output of a job of the project", "GET", "/v1/jobs/{vision}/logs"),
    Attack(LEAD, "cancel a job of another project", "POST", "/v1/jobs/{speech}/cancel"),
    Attack(LEAD, "release a job of the project that an operator holds", "POST", "/v1/jobs/{vision}/release"),
    Attack(LEAD, "drain a node", "POST", "/v1/nodes/gpu01/drain", {"why": "x"}),
)


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    for name, known in names.items():
        text = text.replace(f"{{{name}}}", known)
    return json.loads(text)


async def _setting(api: RunningController) -> dict[str, str]:
    """Jobs of root, in vision and in speech, and tokens; their names for the attacks."""
    await api.join("gpu01")
    names: dict[str, str] = {"root": str(await api.submit(hold=True))}
    for project in ("vision", "speech"):
        after = [{"until": "ok", "job": names["vision"]}] if "vision" in names else []
        body = {**_submit(project=project, after=after), "as_user": "ada"}
        status, made = await api.post("/v1/jobs", body)
        assert status == 201, made
        names[project] = made["label"]
    wishes: dict[str, dict[str, Any]] = {
        "reader": {"can": ["read"]},
        "submitter": {"can": ["read", "submit"]},
        "token_vision": {"can": ["read", "submit", "change", "operate"], "projects": ["vision"]},
        "robot": {"can": ["read", "submit", "change"], "robot": "ci"},
        "revoked": {"can": ["read"]},
    }
    for name, wish in wishes.items():
        status, made = await api.post("/v1/tokens", {"name": name, **wish})
        assert status == 201, made
        names[name], names[f"{name}_id"] = made["text"], made["token"]["id"]
    assert (await api.post(f"/v1/tokens/{names['revoked_id']}/revoke"))[0] == 200
    head, id, secret = names["reader"].rsplit("_", 3)[:3]
    names["cut"] = names["reader"][:-1]
    names["forged"] = _with_sum(f"{head}_{id}_{secret[::-1]}")
    names["other_kind"] = _with_sum(f"corral_robot_{id}_{secret}")
    return names


def _with_sum(body: str) -> str:
    return f"{body}_{zlib.crc32(body.encode()):08x}"


async def _tcp(
    api: RunningController, token: str, attacks: list[Attack], names: Mapping[str, str]
) -> list[int]:
    found = []
    async with aiohttp.ClientSession() as session:
        for each in attacks:
            usual = {"Authorization": f"Bearer {token}"} if token else {}
            headers = {**usual, **_filled(dict(each.headers), names)}
            url = api.server.tcp_url + _filled(each.path, names)
            data = None if each.body is None else json.dumps(_filled(each.body, names))
            async with session.request(each.method, url, data=data, headers=headers) as response:
                found.append(response.status)
    return found


@users.as_other_users
async def test_every_attack_of_the_list_is_refused() -> None:
    with users.made("eve", "ops", "lead") as [eve, ops, lead]:
        async with start_controller(
            api={"listen": "127.0.0.1:0"},
            access={
                "operators": [ops.pw_name],
                "robots": {"ci": {"user": "ada", "projects": ["vision"], "can": ["read", "submit"]}},
            },
            projects={"vision": {"operators": [lead.pw_name]}, "speech": {}},
        ) as api:
            names = await _setting(api)
            [(held, _)] = await visit(api, ops.pw_uid, ("POST", f"/v1/jobs/{names['vision']}/hold", None))
            assert held == 200
            before = api.daemon.seq
            tokens = {
                NO_TOKEN: "",
                READER: "reader",
                SUBMITTER: "submitter",
                VISION: "token_vision",
                ROBOT: "robot",
            }
            wrong = []
            for by in dict.fromkeys(each.by for each in ATTACKS):
                attacks = [each for each in ATTACKS if each.by == by]
                if by in tokens:
                    found = await _tcp(api, names.get(tokens[by], ""), attacks, names)
                else:
                    uid = {EVE: eve, OPS: ops, LEAD: lead}[by].pw_uid
                    asked = [
                        (each.method, _filled(each.path, names), _filled(each.body, names))
                        for each in attacks
                    ]
                    found = [status for status, _ in await visit(api, uid, *asked)]
                wrong += [
                    (by, each.title, status)
                    for each, status in zip(attacks, found, strict=True)
                    if status != each.status
                ]
            assert wrong == []
            assert api.daemon.seq == before, "an attack has changed the state"
            # Each attack with a token or by a user is in the audit log if it was refused for lack of a right.
            _, page = await api.get("/v1/audit")
            denied = [each for each in ATTACKS if each.status in (401, 403)]
            refused = [each for each in page["entries"] if each["status"] in (401, 403)]
            assert len(refused) + sum(each["repeated"] for each in refused) <= len(denied)
            assert {each["caller"] for each in refused} >= {
                "",
                "root",
                "robot:ci",
                eve.pw_name,
                ops.pw_name,
                lead.pw_name,
            }


def test_list_in_the_documents_matches_the_attacks() -> None:
    rows = "\n".join(f"| {each.by} | {each.title} | {each.status} |" for each in ATTACKS)
    table = f"| by | attack | answer |\n|---|---|---|\n{rows}"
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")
        return
    assert shown.strip() == table
