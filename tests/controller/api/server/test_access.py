"""Every cell of docs/access.md: real users call each route of a running controller."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.api.server import access
from controller.api.server.access import Caller, Need, Owner, Role, Who, refusal
from controller.api.server.request import Route
from controller.api.server.routes import ROUTES
from controller.nodes.exec_sessions import ExecSession
from tests import users
from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.server.test_identity import visit
from wire.agent.orders import OpenShell

TABLE = Path(__file__).parents[4] / "docs" / "access.md"


@dataclass(frozen=True)
class Column:
    """A caller and the job that the path names."""

    title: str
    caller: Caller
    owner: Owner


ADA, BO, OPS, LEAD, ROOT = "ada", "bo", "ops", "lead", "root"
VISION = "vision"
COLUMNS = (
    Column("viewer, own job", Caller(ADA, Role.VIEWER), Owner(ADA)),
    Column("user, own job", Caller(ADA, Role.USER), Owner(ADA)),
    Column("user, job of another", Caller(ADA, Role.USER), Owner(BO)),
    Column("user, job of root", Caller(ADA, Role.USER), Owner(ROOT, privileged=True)),
    Column(
        "project operator, job of a user in the project",
        Caller(LEAD, Role.USER, operated=frozenset({VISION})),
        Owner(BO, project=VISION),
    ),
    Column(
        "project operator, job of root in the project",
        Caller(LEAD, Role.USER, operated=frozenset({VISION})),
        Owner(ROOT, privileged=True, project=VISION),
    ),
    Column("operator, job of a user", Caller(OPS, Role.OPERATOR), Owner(BO)),
    Column("operator, job of root", Caller(OPS, Role.OPERATOR), Owner(ROOT, privileged=True)),
    Column("admin", Caller(ROOT, Role.ADMIN), Owner(BO)),
    Column("read-only session of an admin", Caller(ROOT, Role.ADMIN, read_only=True), Owner(BO)),
)


def cell(need: Need, column: Column) -> str:
    """The content of the cell: yes, no, or own (the shells that the caller opened)."""
    if need.who is Who.OPENER and not column.caller.read_only:
        return "own" if refusal(access.EXEC, column.caller, column.owner) is None else "no"
    owner = column.owner if need.of_job else None
    return "no" if refusal(need, column.caller, owner) else "yes"


def rendered() -> str:
    """docs/access.md, whole."""
    host_fields = ", ".join(f"`{name}`" for name in access.HOST_FIELDS)
    head = f"""# Who may do what

This page is generated from `routes.py` and `access.py` in `controller/api/server/`; a test compares it, and
another asks a running controller about every cell, as real users. `CORRAL_RENEW_GOLDEN=1` writes it again.

| role | who has it |
|---|---|
| admin | root, and the controller's own user |
| operator | `[access] operators` |
| user | all others |
| viewer | all others where `[access] others = "view"` |
| project operator | `[projects.NAME] operators`, for the jobs of the project |
| robot | `[access.robots.NAME]`: a role and abilities, only by tokens |

A job of root, or of the controller's own user, runs with their rights. Only an admin changes it, signals it,
opens a shell in it, or reads its output, its environment and its arguments. An operator is not an admin.

An operator of a project has none of the rights by which he could act as the job's user: he cannot change the
job's request, run commands in the job, or read its output.

A token (`corral token create`) has at most the abilities that it was given (`--can`), and never more rights
than its user has at the time of the request. The last column shows the ability that a route needs. A token
without `operate` and `admin` has the role user, also if it is a token of root. A token with `--project` is
only for jobs of these projects: it cannot submit to others, move jobs to others, use routes of operators that
are not about a job, or cancel a job if this would cancel a job of another project. Tokens of users and robots
cannot create or revoke tokens.

A session is read-only if its requests have the header `Corral-Scope: read`, as those of
`corral tui --read-only` have, or, over TCP, the token in `<state_dir>/token.read`. The controller refuses all
changes in such a session. A client with the read token can never change anything. The header only protects a
user from mistakes, because a client could leave the header out.

Some fields need more than their route does:

| field | needs |
|---|---|
| `as_user` of a submit | operator; for root and the controller's user: admin |
| {host_fields} of a host | admin, or scheduler.toml; what an admin has set may stay while `ssh` stays |
| `release` of a job that an operator holds | operator |
| `config` of a what-if | operator |
| `text` and `previous` of a configuration that is applied | admin |
| each job of `POST /v1/jobs/orders` | what the route for one such job needs |
| cancel and retry of a workload | what the cancel of its jobs needs |

| `user` and `robot` of a token | admin |
| `can` and `projects` of a token | the caller has them |
| list and revoke tokens | the caller's own tokens; admin: all |
| events about a token | the token's user; admin: all |

"own" is a shell that the caller has opened; for other shells the answer is 404. The shell is closed if the
caller loses the right to run commands in its job.

| route | {" | ".join(column.title for column in COLUMNS)} | ability |
|---|{"---|" * len(COLUMNS)}---|
"""
    rows = [
        f"| `{route.method} {route.path}` | "
        + " | ".join(cell(route.needs, column) for column in COLUMNS)
        + f" | {route.needs.can.value} |\n"
        for route in sorted(ROUTES, key=lambda route: (route.path, route.method))
    ]
    return head + "".join(rows)


def test_access_table_in_the_documents_matches_the_code() -> None:
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        TABLE.write_text(rendered())
    assert TABLE.read_text() == rendered()


def test_route_without_a_permission_cannot_be_made() -> None:
    sample = ROUTES[0]
    with pytest.raises(TypeError, match="missing"):
        Route(sample.method, sample.path, handle=sample.handle)  # type: ignore[call-arg]


def test_read_only_session_may_read_as_before_and_change_nothing() -> None:
    allowed = [(each.method, each.path) for each in ROUTES if not each.needs.changes]
    questions = ["/v1/jobs/preview", "/v1/login", "/v1/what-if", "/v1/workloads/preview"]
    assert sorted(path for method, path in allowed if method != "GET") == questions
    refused = [each.path for each in ROUTES if each.method == "GET" and each.needs.changes]
    assert refused == ["/v1/shells/{shell}"]


async def test_read_only_session_of_root_cannot_change_anything() -> None:
    async with start_controller() as api:
        await api.join("gpu01")
        job = await api.submit(hold=True)
        asked = (
            ("POST", f"/v1/jobs/{job}/cancel", None),
            ("POST", "/v1/jobs/orders", {"action": "cancel", "jobs": ["all"]}),
            ("POST", "/v1/nodes/gpu01/drain", {"why": "x"}),
            ("GET", f"/v1/jobs/{job}", None),
        )
        said = await visit(api, os.geteuid(), *asked, scope="read")
        assert [status for status, _ in said] == [403, 403, 403, 200]
        assert said[0][1]["message"] == "this session is read-only and may not cancel"
        assert not api.daemon.state.jobs[job].state.terminal
        assert (await visit(api, os.geteuid(), asked[0], scope="write"))[0][0] == 200


def test_viewers_are_refused_every_route_that_changes_state() -> None:
    viewer = Caller(ADA, Role.VIEWER)
    open_to_viewers = [
        route.path
        for route in ROUTES
        if route.method != "GET" and refusal(route.needs, viewer, Owner(ADA)) is None
    ]
    assert sorted(open_to_viewers) == [
        "/v1/login",
        "/v1/shells/{shell}/input",
        "/v1/tokens",
        "/v1/tokens/{token}/revoke",
        "/v1/what-if",
    ]  # a token of a viewer can only read


HOST = {"name": "gpu09", "host": {"ssh": "127.0.0.1:1"}}
BODIES: dict[str, Any] = {
    "/v1/jobs": {"spec": {"command": ["true"]}},
    "/v1/jobs/orders": {"action": "hold", "jobs": ["all"], "only_tell": True},
    "/v1/jobs/{job}/set": {"changes": {"name": "other"}},
    "/v1/jobs/{job}/signal": {"signal": "USR1"},
    "/v1/nodes": HOST,
    "/v1/preflight": HOST,
    "/v1/nodes/{node}/marks": {"labels": {"zone": "a"}},
    "/v1/nodes/{node}/trust": {"host_key": "ssh-ed25519 AAAA"},
    "/v1/quotas/{scope}/{name}/set": {"quota": {"hard": {"gpus": 4}}},
    "/v1/shares": {"share": "default", "weight": 2},
    "/v1/config": {"dry_run": True},
    "/v1/reservations": {
        "reservation": {"name": "r1", "starts_at": 4e9, "duration_s": 60, "node_names": ["gpu01"]}
    },
}
"""Bodies that are accepted. Rights are checked before bodies are read: other routes are tried without one."""


class Asker:
    """Calls the routes of one controller as the users of some columns."""

    def __init__(self, api: RunningController, names: dict[str, str], uids: dict[str, int]) -> None:
        self._house = api
        self._names = names
        self._uids = uids

    async def answers(self, column: Column) -> list[str]:
        """yes, no or own by route, as the controller answered."""
        questions = []
        for number, route in enumerate(ROUTES):
            questions.append((route.method, await self._path(route, column, number), self._body(route)))
        scope = "read" if column.caller.read_only else ""
        said = await visit(self._house, self._uids[column.caller.user], *questions, scope=scope)
        return [self._meaning(route, status) for route, (status, _) in zip(ROUTES, said, strict=True)]

    async def _path(self, route: Route, column: Column, number: int) -> str:
        filled = {
            "{node}": "gpu01",
            "{gpu}": "0",
            "{scope}": "user",
            "{name}": "ada",
            "{profile}": "none",
            "{reservation}": "r0",
        }
        path = route.path
        if "{job}" in path:
            filled["{job}"] = await self._job(column)
        if "{shell}" in path:
            filled["{shell}"] = self._shell(column, f"shell-{number}", int(await self._job(column)))
        for key, value in filled.items():
            path = path.replace(key, value)
        return path

    async def _job(self, column: Column) -> str:
        """A new job of the column's owner."""
        spec = {"command": ["true"], "hold": True, "project": column.owner.project or "default"}
        owner = self._names[column.owner.user]
        status, answer = await self._house.post("/v1/jobs", {"spec": spec, "as_user": owner})
        assert status == 201, answer
        return str(answer["label"])

    def _shell(self, column: Column, key: str, job: int) -> str:
        """A shell that the caller has opened in this job, without a node behind it."""
        sent: list[Any] = []
        shell = ExecSession(OpenShell(1, job, 1), sent.append)
        self._house.server._streams.shells[key] = self._names[column.caller.user], shell
        return key

    @staticmethod
    def _body(route: Route) -> Any:
        return BODIES.get(route.path, {}) if route.method == "POST" else None

    @staticmethod
    def _meaning(route: Route, status: int) -> str:
        assert status < 500 or status == 503, f"{route.method} {route.path}: {status}"
        if route.needs.who is Who.OPENER and status != 403:
            return "own" if status == 200 else f"status {status}"
        return "no" if status == 403 else "yes"


@pytest.mark.parametrize("others", ["submit", "view"])
async def test_running_controller_answers_every_cell_of_the_access_table(others: str) -> None:
    with users.made(ADA, BO, OPS, LEAD) as made:
        known = (ADA, BO, OPS, LEAD)
        names = {ROOT: "root", **dict(zip(known, (each.pw_name for each in made), strict=True))}
        uids = {ROOT: 0, **dict(zip(known, (each.pw_uid for each in made), strict=True))}
        access = {"operators": [names[OPS]], "others": others}
        projects = {VISION: {"operators": [names[LEAD]]}}
        async with start_controller(access=access, projects=projects) as api:
            await api.join("gpu01")
            asker = Asker(api, names, uids)
            for column in COLUMNS:
                if (column.caller.role is Role.VIEWER) != (others == "view"):
                    continue
                answered = await asker.answers(column)
                expected = [cell(route.needs, column) for route in ROUTES]
                wrong = [
                    (route.path, was, should)
                    for route, was, should in zip(ROUTES, answered, expected, strict=True)
                    if was != should
                ]
                assert wrong == [], column.title


async def test_an_operator_sends_no_configuration() -> None:
    """A configuration could name a prolog, and a prolog runs as root."""
    with users.made(OPS) as [operator]:
        async with start_controller(access={"operators": [operator.pw_name]}) as api:
            text = "[jobs]\nprolog = ['/tmp/mine']\n"
            bodies = ({"text": text}, {"previous": True}, {"text": text, "dry_run": True})
            said = await visit(api, operator.pw_uid, *(("POST", "/v1/config", body) for body in bodies))
            assert [status for status, _ in said] == [403, 403, 200]
            assert api.daemon.config.jobs.prolog == []


async def test_operator_cannot_run_code_as_root() -> None:
    """Each configuration by which an operator could become root."""
    with users.made(OPS) as [operator]:
        async with start_controller(access={"operators": [operator.pw_name]}) as api:
            await api.join("gpu01")
            held = await api.submit(hold=True, env={"TOKEN": "hush"})
            running = await api.submit(gpus=1)
            await api.started(running)
            tries = [
                ("POST", f"/v1/jobs/{held}/set", {"changes": {"command": ["sh", "-c", "id"]}}),
                (
                    "POST",
                    "/v1/jobs/orders",
                    {"action": "set", "jobs": [str(held)], "changes": {"command": ["id"]}},
                ),
                ("POST", f"/v1/jobs/{running}/shells", {"command": ["id"]}),
                ("POST", f"/v1/jobs/{running}/signal", {"signal": "USR1"}),
                ("GET", f"/v1/jobs/{running}/logs", None),
                ("POST", "/v1/jobs", {"spec": {"command": ["id"]}, "as_user": "root"}),
                ("GET", f"/v1/jobs/{held}", None),
            ]
            tries += [
                ("POST", path, {"name": "h1", "host": {"ssh": "127.0.0.1:1", field: value}})
                for path in ("/v1/preflight", "/v1/nodes")
                for field, value in (
                    ("python", "/tmp/python"),
                    ("identity", "/etc/ssh/ssh_host_key"),
                    ("spool", "/tmp/spool"),
                    ("scratch_dir", "/tmp"),
                    ("run_as_self", True),
                )
            ]
            answers = await visit(api, operator.pw_uid, *tries)
            statuses = [status for status, _ in answers]
            assert statuses == [403, 200, *[403] * 4, 200, *[403] * 10]
            assert answers[0][1]["message"] == (
                f"only root and admins may change job {held}: it runs with the rights of root"
            )
            assert answers[1][1]["done"] == []
            assert answers[1][1]["refused"][0]["problem"]["code"] == "not_allowed"
            assert answers[6][1]["spec"]["env"] == {}
            assert answers[7][1]["where"] == "host.python"
            assert api.daemon.state.jobs[held].spec.command == ("true",)


async def test_operator_cannot_change_host_settings_of_an_admin() -> None:
    with users.made(OPS) as [operator]:
        async with start_controller(access={"operators": [operator.pw_name]}) as api:
            host = {"ssh": "127.0.0.1:1", "python": "/opt/python"}
            assert (await api.post("/v1/nodes", {"name": "h1", "host": host}))[0] == 201
            asked = [
                {**host, "labels": {"zone": "a"}},
                {**host, "ssh": "127.0.0.1:2"},
                {"ssh": "127.0.0.1:1"},
            ]
            answers = await visit(
                api,
                operator.pw_uid,
                *(("POST", "/v1/nodes", {"name": "h1", "host": each}) for each in asked),
            )
            assert [status for status, _ in answers] == [201, 403, 403]


async def test_shell_is_open_to_its_owner_only() -> None:
    with users.made(ADA, BO) as [ada, bo]:
        async with start_controller() as api:
            shells = api.server._streams.shells
            shells["key"] = ada.pw_name, ExecSession(OpenShell(1, 1, 1), [].append)
            ask = ("POST", "/v1/shells/key/input", {"data": ""})
            assert (await visit(api, bo.pw_uid, ask))[0][0] == 404
            assert (await visit(api, ada.pw_uid, ask))[0][0] == 200
