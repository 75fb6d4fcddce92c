"""Metrics of projects, users and services: shares, budgets, replicas, errors of estimates."""

from __future__ import annotations

from collections.abc import Iterator

from controller.api.handlers.policy.services import service_views
from controller.api.handlers.service.reports import budget_views
from controller.api.metrics import families as m
from controller.core.accounting.reports import PROJECT, fairness, waste
from controller.core.engine import Engine
from controller.core.pipeline.hooks import Sample
from controller.daemon.daemon import Daemon

DAY_S = 86_400.0


def accounting_metrics(daemon: Daemon) -> Iterator[Sample]:
    """Yield the used, entitled and demanded GPU-hours, the fairness points and the longest wait of each
    project in the last day, and the idle and lost GPU-hours by cause.
    """
    now = daemon.now()
    daemon.accounting.close_until(daemon.engine, now)
    periods, since = daemon.accounting.periods, now - DAY_S
    for each in fairness(periods, daemon.state, PROJECT, since, now).rows:
        for kind, hours in (("got", each.got), ("entitled", each.entitled), ("demanded", each.demanded)):
            yield m.PROJECT_HOURS(hours, each.name, kind)
        yield m.PROJECT_POINTS(each.points, each.name)
        yield m.PROJECT_WAIT(each.longest_waiting_s, each.name)
    found = waste(periods, since, now)
    yield from (m.IDLE_HOURS(each.gpu_hours, each.cause) for each in found.idle)
    yield from (m.LOST_HOURS(each.gpu_hours, each.cause) for each in found.lost)


def budget_metrics(engine: Engine, now: float) -> Iterator[Sample]:
    """Yield what each project with a budget has used in the present month: GPU-hours, money, and percent of
    the budget."""
    for each in budget_views(engine.state, now):
        yield m.BUDGET_PERCENT(each.percent, each.project)
        yield m.BUDGET_HOURS(each.gpu_hours, each.project)
        yield m.BUDGET_MONEY(each.money, each.project)


def service_metrics(engine: Engine, now: float) -> Iterator[Sample]:
    """Yield for each service how many replicas must run, and how many are ready."""
    for view in service_views(engine, now):
        yield m.REPLICAS_WANTED(view.wanted, view.name)
        yield m.REPLICAS_READY(view.ready, view.name)


def estimate_metrics(engine: Engine) -> Iterator[Sample]:
    """Yield how many run times (by user) and start times (by kind) were estimated, how many estimates were
    too short, and the sums of the errors, so that a monitoring system can compute the mean error.
    """
    known = engine.state.estimates
    for user, run in sorted(known.scores.items()):
        figures = run.jobs, run.bias_s, run.error_s, run.outlived
        yield from (metric(value, user) for metric, value in zip(m.RUN_ESTIMATES, figures, strict=True))
    for kind, start in sorted(known.starts.items()):
        figures = start.count, start.bias_s, start.error_s, start.late
        yield from (metric(value, kind) for metric, value in zip(m.START_ESTIMATES, figures, strict=True))
