"""Routes of reports: errors of estimated run times and start times, fairness, idle GPU-hours, budgets."""

from __future__ import annotations

from collections.abc import Iterator

from controller.api.server.request import Call
from controller.core.accounting.node_outcomes import nodes_report
from controller.core.accounting.reports import PROJECT, USER, fairness, waste
from controller.core.estimates.prediction_guard import BLOCK
from controller.core.estimates.runtime_prediction import PredictionScore
from controller.core.model.start_estimates import StartScore
from controller.core.state.state import State
from wire.api.service.reports import (
    BudgetReport,
    BudgetView,
    EstimateReport,
    FairnessReport,
    NodesReport,
    PredictionComparison,
    RunEstimate,
    StartEstimates,
    WasteReport,
)

BY = (PROJECT, USER)
USUAL_S = 7 * 86_400
"""The length in seconds of the time that a report covers if `since` is not given (one week)."""


async def estimates(call: Call) -> EstimateReport:
    """Show the errors of estimated run times by user, and of estimated start times by kind of estimate."""
    await call.daemon.settled()
    engine = call.daemon.engine
    scores = engine.state.estimates.scores
    runs = [_run_estimate(user, score) for user, score in scores.items()]
    runs.sort(key=lambda each: (-each.jobs, each.user))
    guard = engine.state.estimates.guard
    together = sum(scores.values(), PredictionScore())
    return EstimateReport(
        "predicted" if engine.pipeline.estimating.predicted else "limit",
        tuple(runs),
        _run_estimate("", together) if together.jobs else None,
        tuple(_start_estimates(*each) for each in sorted(engine.state.estimates.starts.items())),
        None
        if guard is None
        else PredictionComparison(guard.trusted, len(guard.blocks) * BLOCK, guard.ratio),
    )


def _run_estimate(user: str, score: PredictionScore) -> RunEstimate:
    jobs = score.jobs
    return RunEstimate(
        user,
        jobs,
        score.run_s / jobs,
        score.bias_s / jobs,
        score.error_s / jobs,
        score.outlived / jobs,
        score.limit_error_s / score.limited if score.limited else None,
    )


def _start_estimates(kind: str, score: StartScore) -> StartEstimates:
    count = score.count
    return StartEstimates(
        kind, count, score.ahead_s / count, score.bias_s / count, score.error_s / count, score.late / count
    )


async def fairness_report(call: Call) -> FairnessReport:
    """Show for each project or user the used and the entitled GPU-hours, and the waits of its jobs."""
    by = call.query["by"][0] if call.query["by"] else PROJECT
    since, now = await accounted_window(call)
    return fairness(call.daemon.accounting.periods, call.daemon.state, by, since, now)


async def waste_report(call: Call) -> WasteReport:
    """Show idle GPU-hours by cause, and the GPU-hours of work that ended jobs lost."""
    since, now = await accounted_window(call)
    return waste(call.daemon.accounting.periods, since, now)


async def nodes(call: Call) -> NodesReport:
    """Show for each node how its jobs ended, compared with the same jobs on other nodes."""
    await call.daemon.settled()
    now, since = call.daemon.now(), call.query["since"]
    return nodes_report(call.daemon.state, max(0.0, now - USUAL_S) if since is None else float(since), now)


async def budgets_report(call: Call) -> BudgetReport:
    """Show the usage of each project with a budget in the present month."""
    await call.daemon.settled()
    return BudgetReport(tuple(budget_views(call.daemon.state, call.daemon.now())))


def budget_views(state: State, now: float) -> Iterator[BudgetView]:
    """Yield the usage and the budget of each project with a budget, ordered by project."""
    for project, budget in sorted(state.budgets.rules.budgets.items()):
        each = state.budgets.standing(project, now)
        if each is not None:
            yield BudgetView(
                project,
                each.month,
                100 * each.part,
                each.gpu_hours,
                each.gpu_hours_limit,
                each.money,
                each.money_limit,
                each.currency,
                budget.then.value,
                each.ends_at,
            )


async def accounted_window(call: Call) -> tuple[float, float]:
    """Bring the accounting up to date. Return the begin and the end (now) of the time that the report covers,
    in seconds since 1970.
    """
    await call.daemon.settled()
    daemon = call.daemon
    now = daemon.now()
    daemon.accounting.close_until(daemon.engine, now)
    since = call.query["since"]
    return (max(0.0, now - USUAL_S) if since is None else float(since)), now
