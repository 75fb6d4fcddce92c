"""Refuses unknown names of users, projects, queues and nodes.

A name is known if scheduler.toml contains it, or if the user or project has had a job. A user is also known
if an account with this name exists on the controller's host. If all jobs run as the agent's user, no job
needs an account, and every user name is known. If no [queues] are declared, every queue name is known.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Iterable, Mapping

from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.config import Config, nearest
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.model.decision.decision import no_such_node
from controller.core.quota.projects import DEFAULT_PROJECT
from controller.core.state.state import State
from controller.registry import named_projects
from wire.cluster.quota import ANY_NAME
from wire.text import printable


async def need_user(call: Call, user: str, where: str) -> None:
    """Raise Rejected if the user name is not known. `where` is the field of the request that contains the
    name."""
    if not _needs_accounts(call) or user in _users(call) or await asyncio.to_thread(_has_account, user):
        return
    raise rejected(
        "not_found",
        f"there is no user {printable(user)!r}: no account on this host, none in scheduler.toml, no job",
        where,
        nearest(user, _users(call)) or "Create the account first.",
    )


async def need_share(call: Call, share: str) -> None:
    """Raise Rejected if the organisation, project or user in the name of a tenant (such as vision or
    vision/ada) is not known.
    """
    project, bar, user = share.partition("/")
    known = {*known_projects(call), *call.daemon.config.organisations}
    if project not in known:
        message = (
            f"there is no organisation or project {printable(project)!r}: "
            "scheduler.toml does not name it, and it has had no job"
        )
        hint = f"{nearest(project, known)} Or declare it: [projects.{printable(project)}]."
        raise rejected("not_found", message, "share", hint)
    if bar:
        await need_user(call, user, "share")


async def need_tenant(call: Call, scope: str, name: str) -> None:
    """Raise Rejected if the user, queue or project is not known. `scope` is "user", "queue" or "project".
    Accept every queue name if scheduler.toml has no [queues], and every project name if it has no [projects].
    """
    config = call.daemon.config
    if name == ANY_NAME:
        return
    if scope == "user":
        await need_user(call, name, "name")
    elif scope == "queue" and config.queues:
        _need(name, {*config.queues, DEFAULT_QUEUE}, "queue")
    elif scope == "project" and config.projects:
        _need(name, known_projects(call), "project")


async def need_tenants(call: Call, only: Mapping[str, str]) -> None:
    """Raise Rejected if a filter of a report has an unknown name. `only` has the names of the filters by kind
    (user, project or queue).

    Call this only for an empty report. The names in other reports were known, although scheduler.toml may no
    longer contain them.
    """
    for scope, name in only.items():
        await need_tenant(call, scope, name)


def need_node(call: Call, name: str) -> None:
    """Raise Rejected if there is no such node. `name` is the name of a node, or of a GPU such as gpu01:3."""
    node = name.rpartition(":")[0] or name
    if call.daemon.state.nodes.get(node) is None:
        raise Rejected(no_such_node(printable(node)))


def _need(name: str, known: Iterable[str], kind: str) -> None:
    names = set(known)
    if name not in names:
        hint = f"{nearest(name, names)} Or declare it in scheduler.toml: [{kind}s.{printable(name)}]."
        raise rejected("not_found", f"there is no {kind} {printable(name)!r}", "name", hint)


def _needs_accounts(call: Call) -> bool:
    """Return whether any node runs jobs under the Unix account of the job's user."""
    daemon = call.daemon
    local = os.geteuid() == 0 and any(
        each.host is None and not each.run_as_self for each in daemon.config.nodes.values()
    )
    hosts = [each.host for each in daemon.config.nodes.values()] + [node.host for node in daemon.state.nodes]
    return local or any(host is not None and not host.run_as_self for host in hosts)


def _has_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True


def _users(call: Call) -> set[str]:
    """Return the users in scheduler.toml, and all users that have had a job."""
    config = call.daemon.config
    return {
        *config.access.operators,
        *config.access.limits.users,
        *(config.quota.options.get("users") or {}),
        *(user for queue in config.queues.values() for user in queue.users),
        *(user for profile in config.profiles.values() for user in profile.users),
        *(user for project in config.projects.values() for user in (*project.members, *project.default_for)),
        *(user for _, user in _seen(call.daemon.state, config)),
    }


def known_projects(call: Call) -> set[str]:
    """Return the projects in scheduler.toml, the default project, and all projects that have had a job."""
    config = call.daemon.config
    return {
        DEFAULT_PROJECT,
        *named_projects(config),
        *(project for project, _ in _seen(call.daemon.state, config)),
    }


def _seen(state: State, config: Config) -> Iterable[tuple[str, str]]:
    """Return the (project, user) pairs of all present and deleted jobs. The fair-share tree keeps a pair when
    its jobs are deleted.
    """
    organisations = config.organisations
    for path in state.shares.accounts:
        if len(path) >= 2 and not (len(path) == 2 and path[0] in organisations):
            yield path[-2], path[-1]
