"""The tools of the MCP server that change the cluster, in two steps: plan, then apply.

1. `plan` checks a change, asks the controller for its effects on other jobs, and keeps the change under a
   random id. Nothing is changed.
2. `apply` carries out the change with this id. An id can be used once, within PLAN_S seconds.

Only the actions that the user named in --allow can be planned. The controller checks the rights of the user
that runs `corral mcp`, as for every other command.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from cli.mcp.answers import ask
from cli.mcp.effects import effects_of, job_spec
from wire.http.client import Client

PLAN_S, MOST_PLANS = 600.0, 100


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A planned change that was not applied. `text` names the change, `apply` carries the change out, and
    `expires_at` is the time of `time.monotonic()` until which `apply` may be called.
    """

    text: str
    apply: Callable[[Client], Any]
    expires_at: float


class Changes:
    """The planned changes of one MCP session."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._planned: dict[str, PlannedChange] = {}

    def plan(self, action: str, target: str = "", spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Plan a change and show its effects. Nothing is changed before `apply` is called with the id.

        `action` is submit, cancel, hold, release (of the job `target`), drain or resume (of the node
        `target`). For submit, `spec` is a JobSpec of the API: {"command": ["python", "train.py"], "gpus": 1}.
        """
        if action not in self._allowed:
            allowed = ", ".join(sorted(self._allowed))
            raise ToolError(f"{action!r} is not allowed in this session; allowed: {allowed}")
        effects = ask(lambda client: effects_of(client, action, target, spec))
        id = self._keep(action, target, spec, effects["data"]["effects"]["id"])
        return {**effects, "id": id, "expires_in_s": PLAN_S, "next": f"To carry it out: apply(id={id!r})"}

    def apply(self, id: str) -> dict[str, Any]:
        """Carry out a planned change. `id` is the id that `plan` returned; an id can be used once."""
        planned = self._planned.pop(id, None)
        if planned is None or planned.expires_at < time.monotonic():
            raise ToolError("there is no planned change with this id, or it has expired; call plan again")
        return {"done": planned.text, **ask(planned.apply)}

    def _keep(self, action: str, target: str, spec: Mapping[str, Any] | None, what_if: str) -> str:
        """Keep a planned change, and return its id. `what_if` is the id of the what-if answer with its
        effects: the controller refuses the change if its effects have changed since this answer.
        """
        now = time.monotonic()
        self._planned = {id: each for id, each in self._planned.items() if each.expires_at >= now}
        if len(self._planned) >= MOST_PLANS:
            raise ToolError(f"{MOST_PLANS} changes are planned and not applied; apply one, or wait")
        id = secrets.token_hex(8)
        job = job_spec(spec) if action == "submit" else None
        key = f"mcp-{id}"  # With a key, a repeated request creates no second job.

        def carry_out(client: Client) -> Any:
            with client.expecting(what_if):
                if job is not None:
                    return client.submit(job, key=key)
                return getattr(client, action)(target)

        self._planned[id] = PlannedChange(f"{action} {target}".strip(), carry_out, now + PLAN_S)
        return id
