"""Builds the entries of the audit log from requests: the object, its state before and after, the outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from controller.access.audit_log import without_secrets
from controller.api.server.access import PUBLIC, Ability, Caller
from controller.api.server.request import Route
from controller.core.state.state import State
from wire.api.service.access import AuditRecord, LoginAnswer
from wire.codec import dumps, encode

USUAL = {"", None, False}


class AuditedRequest:
    """The data of one request for its entry in the audit log."""

    def __init__(self) -> None:
        self.route: Route | None = None
        self.caller: Caller | None = None
        self.path: Mapping[str, str] = {}
        self.before: Mapping[str, Any] = {}
        self.body: Any = None
        self.answer: Any = None
        self.of_other = False
        """True if the request reads the output of another user's job."""

    def is_recorded(self, status: int) -> bool:
        """Return whether the audit log gets the request: a change, a request without the right or the token
        for it (status 401 or 403), or a read of another user's output.
        """
        if status in (401, 403):
            return True
        route = self.route
        if route is None:
            return False
        logs_in = route.needs is PUBLIC and route.method != "GET"
        return logs_in or route.needs.changes or (route.needs.can is Ability.OUTPUT and self.of_other)

    def entry(
        self, state: State, method: str, address: str, status: int, problem: str, at: float
    ) -> AuditRecord:
        """Return the entry of the request for the audit log. AuditLog sets its number and its hash."""
        caller, route = self.caller, self.route
        now = snapshot(state, self.path, route.path) if self.before and route is not None else {}
        before, after = changes(self.before, now)
        return AuditRecord(
            0,
            at,
            caller.name if caller is not None else "",
            caller.role.value if caller is not None else "",
            caller.token if caller is not None else "",
            address,
            f"{route.method} {route.path}" if route is not None else method,
            " ".join(f"{name} {value[:100]}" for name, value in self.path.items() if name != "shell"),
            "ok" if status < 400 else problem if status == 499 else f"refused: {problem}",
            status,
            before,
            {**after, **_result(self.answer)},
            {} if self.body is None else _request(self.body),
        )


def snapshot(state: State, path: Mapping[str, str], route: str) -> dict[str, Any]:
    """Return the properties that a request to this route may change: those of the object that its path names,
    the hash of the configuration, or the fair-share weights. Secrets are left out.
    """
    found: dict[str, Any] = {}
    if "job" in path and (job := state.find(path["job"])) is not None:
        found = {**encode(job.spec), "state": job.state.value, "held": job.held}
    if "node" in path and (node := state.nodes.get(path["node"])) is not None:
        found = {
            "drained": node.drained,
            "labels": dict(node.labels),
            "host": None if node.host is None else encode(node.host),
        }
    if "scope" in path:
        quota = state.quotas.edits.get((path["scope"], path["name"]))
        found = {"quota": None if quota is None else encode(quota)}
    if "reservation" in path:
        made = state.reservations.by_name.get(path["reservation"])
        found = {"reservation": None if made is None else encode(made.spec)}
    if "service" in path:
        orders = state.services.get(path["service"])
        found = {"orders": None if orders is None else encode(orders)}
    if "token" in path:
        token = state.tokens.by_id.get(path["token"])
        found = {"token": None if token is None else encode(token)}
    if route == "/v1/config":
        applied = "" if state.config is None else dumps(encode(state.config))
        found = {"config": hashlib.sha256(applied.encode()).hexdigest()}
    if route == "/v1/shares":
        found = {"weights": dict(state.shares.set_weights)}
    clean: dict[str, Any] = without_secrets(found)
    return clean


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the properties that differ, with their values before and after."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def _request(body: Any) -> dict[str, Any]:
    sent = without_secrets(encode(body))
    return {name: value for name, value in sent.items() if value not in ([], {}) and not _is_usual(value)}


def _is_usual(value: Any) -> bool:
    return not isinstance(value, dict | list) and value in USUAL


def _result(answer: Any) -> dict[str, Any]:
    """Return the ids of the jobs that a submit made, or that a request about many jobs has changed; or the
    user of a login."""
    if isinstance(ids := getattr(answer, "ids", None), tuple):
        return {"jobs": list(ids[:50]), "count": len(ids)}
    if isinstance(done := getattr(answer, "done", None), tuple):
        return {"jobs": [each.label for each in done[:50]], "count": len(done)}
    if isinstance(answer, LoginAnswer):
        return {"token": answer.token.id, "user": answer.token.user}
    return {}
