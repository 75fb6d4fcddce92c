"""Generates logs in which users submit sessions of similar jobs with wrong time limits, for one pool of
processors.
"""

from __future__ import annotations

import math
import random
from enum import StrEnum
from typing import NamedTuple

from controller.sim.cluster import Cluster, pool_of
from controller.sim.trace_job import TraceJob

USERS = 45
LONGEST_S = 216_000
LIMITS_S = (300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400, 129_600, LONGEST_S)
"""The time limits from which users choose."""


class RunTimes(StrEnum):
    """How the run times of a user's jobs are drawn."""

    SESSIONS = "sessions"
    """The jobs of one session are similar, and some of them fail early."""
    INDEPENDENT = "independent"
    """The run times do not depend on the user."""
    ALTERNATING = "alternating"
    """Short and long jobs alternate."""
    EXACT_LIMITS = "exact limits"
    """As SESSIONS, but with time limits that equal the run times."""


class Template(NamedTuple):
    """One kind of job of a user: the median of the run times, the processors, the spread of the run times,
    how many times too long the time limit is, and the part of the jobs that fail early.
    """

    median_s: float
    size: int
    sigma: float
    excess: float
    failing: float


class _Draft(NamedTuple):
    after_s: float
    run_s: float
    size: int
    limit_s: float
    user: str


def session_log(
    seed: int, processors: int, load: float, kind: RunTimes, count: int = 5_000
) -> tuple[Cluster, list[TraceJob]]:
    """Return a pool of `processors` and `count` jobs, with a load of `load` times the pool.

    1. Draw the users with their templates. A few users submit most of the sessions.
    2. Draw sessions of a random user and template, until there are `count` jobs.
    3. Draw the begin of each session. In working hours, sessions are three times as frequent.
    """
    rng = random.Random(seed)
    users = [
        (1 / (number + 1) ** 0.8, [_template(rng, processors) for _ in range(rng.randint(1, 4))])
        for number in range(USERS)
    ]
    weights = [weight for weight, _ in users]
    sessions: list[list[_Draft]] = []
    left = count
    while left:
        user = rng.choices(range(USERS), weights)[0]
        sessions.append(_session(rng, f"u{user}", rng.choice(users[user][1]), kind, left))
        left -= len(sessions[-1])
    used_s = sum(draft.run_s * draft.size for session in sessions for draft in session)
    span_s = used_s / (processors * load)
    drafts = []
    for session in sessions:
        begin = _begin(rng, span_s)
        drafts += [draft._replace(after_s=begin + draft.after_s) for draft in session]
    pool = pool_of(processors)
    return pool, [
        TraceJob(
            number,
            round(each.after_s),
            pool.spec(each.size, round(each.limit_s)),
            max(1.0, round(each.run_s)),
            each.user,
        )
        for number, each in enumerate(sorted(drafts), 1)
    ]


def _template(rng: random.Random, processors: int) -> Template:
    median_s = min(max(math.exp(rng.gauss(7.0, 1.8)), 20.0), 100_000.0)
    size = int(min(processors // 2, 2 ** min(6, int(abs(rng.gauss(0, 2.2))))))
    return Template(median_s, size, rng.uniform(0.1, 1.0), rng.choice([1.2, 2, 4, 10]), rng.uniform(0, 0.35))


def _session(rng: random.Random, user: str, template: Template, kind: RunTimes, most: int) -> list[_Draft]:
    median_s, size, sigma, excess, failing = template
    asked_s = _limit_for(median_s * excess * math.exp(sigma))
    after_s, jobs = 0.0, list[_Draft]()
    for number in range(min(most, 1 + int(rng.expovariate(1 / 4)))):
        run_s, limit_s = median_s * math.exp(rng.gauss(0, sigma)), float(asked_s)
        if kind is RunTimes.INDEPENDENT:
            run_s = math.exp(rng.gauss(7, 1.9))
        if kind is RunTimes.ALTERNATING:
            run_s = median_s * (8 if number % 2 else 0.3)
        if rng.random() < failing and kind is not RunTimes.ALTERNATING:
            run_s = min(run_s, rng.expovariate(1 / 60))
        if kind is RunTimes.EXACT_LIMITS:
            limit_s = run_s * 1.001 + 1
        if kind in (RunTimes.INDEPENDENT, RunTimes.ALTERNATING):
            limit_s = float(_limit_drawn(rng, run_s))
        run_s = max(1.0, min(run_s, limit_s))
        jobs.append(_Draft(after_s, run_s, size, limit_s, user))
        after_s += rng.expovariate(1 / 400) if rng.random() < 0.7 else run_s * rng.uniform(0.3, 1.3)
    return jobs


def _limit_for(run_s: float) -> int:
    return next((limit for limit in LIMITS_S if limit >= run_s), LONGEST_S)


def _limit_drawn(rng: random.Random, run_s: float) -> int:
    """Return a time limit that is up to ten times too long."""
    return next((limit for limit in LIMITS_S if limit >= run_s * rng.choice([1.1, 2, 5, 10])), LONGEST_S)


def _begin(rng: random.Random, span_s: float) -> float:
    while True:
        begin = rng.uniform(0, span_s)
        if rng.random() < (1 if 9 <= begin % 86_400 / 3_600 <= 18 else 0.35):
            return begin
