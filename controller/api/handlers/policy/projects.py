"""Routes of projects: the members, the weight, the share, the quota and the budget of each."""

from __future__ import annotations

from collections.abc import Mapping

from controller.api.handlers.policy.quotas import quota_views
from controller.api.handlers.service.known_names import known_projects
from controller.api.handlers.service.reports import budget_views
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.config import nearest
from controller.core.fairshare.share_tree import ShareTree
from controller.core.quota.projects import DEFAULT_PROJECT
from controller.registry.checks.policy_summary import policies, uses_shares
from wire.api.policy.projects import ProjectList, ProjectView
from wire.text import printable


async def listing(call: Call) -> ProjectList:
    """List all declared projects, and all other projects that have had jobs."""
    await call.daemon.settled()
    rules = call.daemon.engine.pipeline.rules.projects
    names = {*known_projects(call), *declared_projects(call)}
    return ProjectList(_views(call, sorted(names)), rules.unknown.value, call.daemon.seq)


async def show(call: Call) -> ProjectView:
    """Show one project: its members, weight, share, quota and budget."""
    name = call.path["project"]
    await call.daemon.settled()
    known = {*known_projects(call), *declared_projects(call)}
    if name not in known:
        message = f"there is no project {printable(name)!r}: nothing declares it, and it has had no job"
        raise rejected(
            "not_found", message, "project", nearest(name, known) or "'corral projects' lists them."
        )
    (view,) = _views(call, [name])
    return view


def _views(call: Call, names: list[str]) -> tuple[ProjectView, ...]:
    """Return the API's views of these projects."""
    daemon = call.daemon
    state, config, pipeline, now = daemon.state, daemon.config, daemon.engine.pipeline, daemon.now()
    rules, tree = pipeline.rules.projects, state.shares
    declared = declared_projects(call)
    compared = any(uses_shares(each.order) for each in policies(pipeline))
    shares = entitlements(tree, declared) if compared else {}
    budgets = {each.project: each for each in budget_views(state, now)}
    quotas = quota_views(call, [("project", name) for name in names])
    views = []
    for name, quota in zip(names, quotas, strict=True):
        path = tree.path(name, "")[:-1]
        section = config.projects.get(name)
        views.append(
            ProjectView(
                name,
                name in declared or name == DEFAULT_PROJECT,
                tuple(sorted(rules.members.get(name, ()))),
                rules.may_use(call.asker, name),
                tree.weight(path),
                quota,
                tuple(section.default_for) if section is not None else (),
                path[0] if len(path) > 1 else "",
                shares.get(name),
                tree.factor(path, state.capacity, now) if path in tree.accounts else 1.0,
                budgets.get(name),
                tuple(queue for queue, rule in pipeline.rules.queues.items() if name in rule.projects),
            )
        )
    return tuple(views)


def declared_projects(call: Call) -> set[str]:
    """Return the projects of scheduler.toml, and those for which operators have set a quota, a weight or a
    limit."""
    state, rules = call.daemon.state, call.daemon.engine.pipeline.rules.projects
    return {*rules.declared} | state.quotas.projects_set_live() | state.shares.projects_set_live()


def entitlements(tree: ShareTree, projects: set[str]) -> Mapping[str, float]:
    """Return the part of the cluster, from 0 to 1, to which each project is entitled while all of `projects`
    have waiting jobs.

    1. Organisations, and the projects outside organisations, divide the cluster by their weights.
    2. The projects of an organisation divide its part by their weights.

    Example: organisation lab (weight 3) has the projects a and b, and project c (weight 1) has no
    organisation. The parts are 3/8 for a and b, and 1/4 for c.
    """
    paths = {name: tree.path(name, "")[:-1] for name in projects}
    levels = {path[:depth] for path in paths.values() for depth in range(1, len(path) + 1)}

    def part(path: tuple[str, ...]) -> float:
        if not path:
            return 1.0
        beside = sum(tree.weight(each) for each in sorted(levels) if each[:-1] == path[:-1])
        return part(path[:-1]) * tree.weight(path) / beside if beside else 0.0

    return {name: part(path) for name, path in paths.items()}
