"""Notifications over HTTP: what operators and users see and may set, and what answers never contain."""

from __future__ import annotations

import json
from typing import Any

from tests.controller.api.running_controller import start_controller
from tests.controller.api.server.test_identity import as_root, some_user, visit

NOTIFY: dict[str, Any] = {
    "sinks": {
        "mail": {
            "kind": "smtp",
            "host": "127.0.0.1",
            "port": 9,
            "sender": "corral@example.org",
            "security": "none",
            "allowed_domains": ["example.org"],
        },
        "ops": {"kind": "webhook", "url": "http://127.0.0.1:9/secret-path"},
    },
    "rules": {
        "failed": {"when": ["mine.ended"], "sink": "mail"},
        "all": {"when": ["mine.ended"], "sink": "ops", "users": ["root"]},
    },
}


@as_root
async def test_users_see_and_set_only_their_own() -> None:
    user = some_user()
    async with start_controller(notify=NOTIFY) as api:
        wanted = {"when": ["mine.ended"], "mail": "u@example.org"}
        (status, set_), (_, shown), (refused, _), (untested, _) = await visit(
            api,
            user.pw_uid,
            ("POST", "/v1/notify/me", wanted),
            ("GET", "/v1/notify/me", None),
            ("POST", "/v1/notify/retry", {"all": True}),
            ("POST", "/v1/notify/test", {"sink": "ops"}),
        )
        assert (status, set_["settings"]["mail"], set_["sinks"]) == (200, "u@example.org", ["mail"])
        assert shown == set_
        assert (refused, untested) == (403, 403)
        # Nothing listens on port 9, so the messages of both users wait.
        await api.join("n1")
        await api.ended(await api.submit())
        [(_, answer)] = await visit(api, user.pw_uid, ("POST", "/v1/jobs", {"spec": {"command": ["true"]}}))
        await api.ended(answer["ids"][0])
        await api.daemon.settled()
        [(_, own)] = await visit(api, user.pw_uid, ("GET", "/v1/notify/outbox", None))
        assert [(each["to"], each["user"]) for each in own["messages"]] == [("u@example.org", user.pw_name)]
        _, everything = await api.get("/v1/notify/outbox")
        assert {each["sink"] for each in everything["messages"]} == {"mail", "ops"}
        _, view = await api.get("/v1/notify")
        for each in (own, everything, view):
            assert "secret-path" not in json.dumps(each)


async def test_wrong_settings_are_refused_with_their_field() -> None:
    async with start_controller(notify=NOTIFY) as api:
        for body, field in (
            ({"when": ["gpu.out"], "mail": "a@example.org"}, "when"),
            ({"when": ["idle"], "mail": "a@b@c"}, "mail"),
            ({"when": ["idle"], "mail": "a@example.org\nBcc: x@y"}, "mail"),
            ({"when": ["idle"], "mail": "a@elsewhere.example"}, "mail"),
            ({"when": ["idle"]}, "mail"),
            ({"when": ["idle"], "ntfy": "topic"}, "ntfy"),
            ({"when": ["idle"], "mail": "a@example.org", "every": "2h"}, "every"),
            ({"when": ["idle"], "mail": "a@example.org", "quiet": ["25:00-26:00"]}, "quiet"),
        ):
            status, problem = await api.post("/v1/notify/me", body)
            assert (status, problem["where"]) == (400, field), body
        assert api.daemon.notifier.settings == {}
        status, problem = await api.post("/v1/notify/test", {"sink": "none"})
        assert (status, problem["where"]) == (404, "sink")
        status, answer = await api.post("/v1/notify/test", {"sink": "ops"})
        assert (status, answer["error"]) == (200, "cannot connect to 127.0.0.1: Connection refused")
        assert (await api.post("/v1/notify/retry", {"ids": ["x"]}))[0] == 404
