"""Asks the controller for the effects of a change on other jobs. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from wire.api.forecasts import WhatIf
from wire.codec import Malformed, decode, encode
from wire.http.client import Client
from wire.job.spec import JobSpec

OF_JOBS, OF_NODES = ("cancel", "hold", "release", "preempt"), ("drain", "resume")


def effects_of(client: Client, action: str, target: str, spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the effects of the change, which the controller computes on a copy of its state. Raise ToolError
    if the controller would refuse the change.
    """
    if action == "submit":
        changes: dict[str, Any] = {"submit": (client.preview(job_spec(spec)),)}
    elif action in OF_NODES:
        # Request the node, so that an unknown name is refused now and not when the change is applied.
        client.node(target)
        changes = {action: (target,)}
    elif action in OF_JOBS:
        changes = {action: (client.job(target).job.id,)}
    else:
        raise ToolError(f"{action!r} is not an action; actions: {', '.join(('submit', *OF_JOBS, *OF_NODES))}")
    found = client.what_if(WhatIf(**changes), only_first=True)
    if found.refused:
        raise ToolError(f"the controller would refuse this: {found.refused[0]}")
    return {"action": action, "target": target, "effects": encode(found)}


def job_spec(spec: Mapping[str, Any] | None) -> JobSpec:
    try:
        return decode(JobSpec, dict(spec or {}), "spec")
    except Malformed as error:
        raise ToolError(f"{error}; a spec has at least a command, such as ['python', 'train.py']") from None
