"""Completes names of jobs, nodes, queues, projects and reservations in the shell. If no controller answers,
the shell gets no suggestions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wire.text import printable


def words(*known: str) -> Callable[[str], list[str]]:
    """Return a function that completes one of the words `known`."""
    return lambda incomplete: [word for word in known if word.startswith(incomplete)]


def jobs(incomplete: str) -> list[tuple[str, str]]:
    """Return the active jobs whose ids begin with the characters typed so far, and the words `last` and
    `all`.
    """
    from wire.http.client import Client, Refused, Unreachable
    from wire.names import SHOWN_STATES

    words = [("last", "the newest job"), ("all", "every active job")]
    try:
        page = Client(timeout_s=1.0).jobs(states=[s for s in SHOWN_STATES if not s.terminal], limit=200)
        words += [(job.label, printable(f"{job.name} {job.user} {job.state.value}")) for job in page.jobs]
    except (Refused, Unreachable):
        pass
    return [word for word in words if word[0].startswith(incomplete)]


def tenants(ctx: Any, incomplete: str) -> list[str]:
    """Return the users, projects or queues whose names begin with the characters typed so far. The argument
    `scope` of the command says which of these kinds of names is completed.
    """
    from wire.http.client import Client, Refused, Unreachable

    scope = ctx.params.get("scope")
    if scope == "project":
        return projects(incomplete)
    try:
        client = Client(timeout_s=1.0)
        names = [each.name for each in client.queues().queues] if scope == "queue" else []
        names += [each.name for each in client.quotas().quotas if each.scope == scope]
    except (Refused, Unreachable):
        return []
    return [printable(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def queues(incomplete: str) -> list[str]:
    """Return the queues whose names begin with the characters typed so far."""
    from wire.http.client import Client, Refused, Unreachable

    try:
        known = Client(timeout_s=1.0).queues().queues
    except (Refused, Unreachable):
        return []
    return [printable(each.name) for each in known if each.name.startswith(incomplete)]


def reservations(incomplete: str) -> list[str]:
    """Return the reservations whose names begin with the characters typed so far."""
    from wire.http.client import Client, Refused, Unreachable

    try:
        known = Client(timeout_s=1.0).reservations().reservations
    except (Refused, Unreachable):
        return []
    return [printable(each.spec.name) for each in known if each.spec.name.startswith(incomplete)]


def projects(incomplete: str) -> list[str]:
    """Return the projects whose names begin with the characters typed so far."""
    from wire.http.client import Client, Refused, Unreachable

    try:
        known = Client(timeout_s=1.0).projects().projects
    except (Refused, Unreachable):
        return []
    return [printable(each.name) for each in known if each.name.startswith(incomplete)]


def nodes(incomplete: str) -> list[tuple[str, str]]:
    """Return the nodes whose names begin with the characters typed so far, each with its state."""
    from wire.http.client import Client, Refused, Unreachable

    try:
        known = Client(timeout_s=1.0).nodes().nodes
    except (Refused, Unreachable):
        return []
    return [(node.name, node.state.value) for node in known if node.name.startswith(incomplete)]
