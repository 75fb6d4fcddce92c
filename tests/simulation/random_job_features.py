"""Rare features of jobs, drawn often: alone and combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.sim.generate.random_numbers import RandomStream, WeightedChoice
from wire.job.gangs import Gang, MemberFailure
from wire.job.placement.affinity import parse_preference, parse_term, parse_toleration
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, OnNodeLost, Restart, RestartWhen, Until

RARELY, NOW_AND_THEN, OFTEN = 0.06, 0.12, 0.3
UNTIL = WeightedChoice(
    [(Until.ENDED, 3.0), (Until.OK, 2.0), (Until.STARTED, 1.0), (Until.NOT_OK, 0.5), (Until.CHECKPOINT, 0.5)]
)
LOST = WeightedChoice([(OnNodeLost.REQUEUE, 2.0), (OnNodeLost.MANUAL, 1.0)])
COMPANY = WeightedChoice(
    [
        (parse_job_term("app=x on node:prefer", 1), 1.0),
        (parse_job_term("app=x on node", None), 1.0),
        (parse_job_term("app=x on node=2", 0), 1.0),
    ]
)
FAILURES = WeightedChoice([(each, 1.0) for each in MemberFailure])
TAINT = "broken"
"""The key of the taint that operators set and remove."""


def with_wishes(
    rng: RandomStream,
    spec: JobSpec,
    number: int,
    submit_s: float,
    seconds: float,
    licences: Mapping[str, int],
) -> JobSpec:
    """The job with random features; `number` is the number of jobs before it, `seconds` the length of the
    trial."""
    drawn = dict(_of_time(rng, spec, submit_s, seconds))
    drawn.update(_of_place(rng, licences))
    drawn.update(_of_others(rng, spec, number))
    return replace(spec, **drawn)


def _of_time(rng: RandomStream, spec: JobSpec, submit_s: float, seconds: float) -> Iterator[tuple[str, Any]]:
    if rng.chance(NOW_AND_THEN):
        limit = rng.between(1, 3)
        again = RestartWhen.ON_FAILURE
        yield "restart", Restart(again, int(limit), delay_s=30.0 if rng.chance(0.5) else 0.0)
    if rng.chance(RARELY):
        yield "begin_at", submit_s + rng.between(0.0, seconds / 4)
    if rng.chance(RARELY):
        yield "deadline_at", submit_s + (spec.time_limit_s or 0.0) + rng.between(1.0, seconds / 2)
    if rng.chance(RARELY):
        yield "start_within_s", rng.between(1.0, seconds / 4)
    if rng.chance(NOW_AND_THEN):
        yield "on_node_lost", LOST.draw(rng)
    if rng.chance(OFTEN):
        yield "checkpoint_signal", "USR1"
        yield "checkpoint_s", 30.0


def _of_place(rng: RandomStream, licences: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    if licences and rng.chance(OFTEN):
        yield "licences", {name: 1 + int(rng.uniform() * most) for name, most in licences.items()}
    if rng.chance(NOW_AND_THEN):
        yield "scratch_mib", 1_024 * (1 + int(rng.uniform() * 60))
    if rng.chance(RARELY):
        yield "affinity", (parse_term("node in n1,n2"),)
        yield "relax", ("affinity",)
        yield "relax_after_s", 600.0
    if rng.chance(RARELY):
        yield "preferences", (parse_preference("node in n2"),)
    if rng.chance(RARELY):
        yield "tolerations", (parse_toleration(TAINT),)
    if rng.chance(NOW_AND_THEN):
        yield "labels", {"app": "x"}
    if rng.chance(RARELY):
        yield "company", (COMPANY.draw(rng),)


def _of_others(rng: RandomStream, spec: JobSpec, number: int) -> Iterator[tuple[str, Any]]:
    """Features of gangs and dependencies."""
    if (spec.nodes or 1) > 1 and rng.chance(0.6):
        fewer = rng.chance(0.6)
        yield (
            "gang",
            Gang(
                min_nodes=1 if fewer else None,
                assembly_s=300.0 if fewer and rng.chance(0.3) else 0.0,
                on_failure=FAILURES.draw(rng),
                elastic=fewer and rng.chance(0.7),
            ),
        )
        if rng.chance(0.5):
            yield "priority", 10  # because other jobs will request its nodes
    if rng.chance(NOW_AND_THEN):
        yield "preemptible", False
    if rng.chance(0.5):
        yield "project", "p" if rng.chance(0.5) else "q"
    if number and rng.chance(NOW_AND_THEN):
        # By name, because ids are not known yet.
        before = {f"j{1 + int(rng.uniform() * number)}" for _ in range(1 + int(rng.uniform() * 2))}
        yield "after", tuple(Dependency(UNTIL.draw(rng), job) for job in sorted(before))
        if rng.chance(0.3):
            yield "after_within_s", 3_600.0
