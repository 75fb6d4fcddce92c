"""Routes of reports on the errors of run time estimates and start time estimates."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.core.estimates.runtime_prediction import PredictionScore
from controller.core.model.start_estimates import StartScore
from wire.api.reports import EstimateReport, RunEstimate, StartEstimates


async def estimates(call: Call) -> EstimateReport:
    """Show the errors of run time estimates by user, and of start time estimates by kind."""
    await call.daemon.settled()
    engine = call.daemon.engine
    scores = engine.state.estimates.scores
    runs = [_run_estimate(user, score) for user, score in scores.items()]
    runs.sort(key=lambda each: (-each.jobs, each.user))
    together = sum(scores.values(), PredictionScore())
    return EstimateReport(
        "predicted" if engine.pipeline.estimating.predicted else "limit",
        tuple(runs),
        _run_estimate("", together) if together.jobs else None,
        tuple(_start_estimates(*each) for each in sorted(engine.state.estimates.starts.items())),
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
