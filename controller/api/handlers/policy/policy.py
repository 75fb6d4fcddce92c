"""The route that explains in sentences what the scheduling policy means."""

from __future__ import annotations

from controller.api.handlers.policy.projects import declared_projects, entitlements
from controller.api.handlers.service.known_names import need_tenant
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.registry.checks.policy_explanation import PolicyExplainer, explanation
from wire.api.service.config import PolicyExplanation


async def explain(call: Call) -> PolicyExplanation:
    """Explain the policy for a user, a project or a queue in sentences.

    Without `scope`, explain the policy for the cluster and for all declared projects and queues."""
    scope, name = call.query["scope"].replace("cluster", ""), call.query["name"] or ""
    if bool(scope) != bool(name):
        raise rejected("invalid", "scope and name belong together", "name" if scope else "scope")
    await call.daemon.settled()
    if scope:
        await need_tenant(call, scope, name)
    config, tree = call.daemon.config, call.daemon.state.shares
    declared = declared_projects(call)
    weights = {each: tree.weight(tree.path(each, "")[:-1]) for each in declared}
    explainer = PolicyExplainer(
        config,
        call.daemon.engine.pipeline,
        call.daemon.state.quotas,
        weights,
        entitlements(tree, declared),
        frozenset(declared),
    )
    return explanation(explainer, scope, name)
