"""What few jobs ask for beside their size, drawn often: each on its own, and several at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.sim.generate.dice import Dice, Odds
from wire.affinity import preference_of, term_of, toleration_of
from wire.company import job_term_of
from wire.conditions import Dependency, OnNodeLost, Restart, RestartWhen, Until
from wire.gangs import Gang, MemberFailure
from wire.spec import JobSpec

RARELY, NOW_AND_THEN, OFTEN = 0.06, 0.12, 0.3
UNTIL = Odds(
    [(Until.ENDED, 3.0), (Until.OK, 2.0), (Until.STARTED, 1.0), (Until.NOT_OK, 0.5), (Until.CHECKPOINT, 0.5)]
)
LOST = Odds([(OnNodeLost.REQUEUE, 2.0), (OnNodeLost.MANUAL, 1.0)])
COMPANY = Odds(
    [
        (job_term_of("app=x on node:prefer", 1), 1.0),
        (job_term_of("app=x on node", None), 1.0),
        (job_term_of("app=x on node=2", 0), 1.0),
    ]
)
FAILURES = Odds([(each, 1.0) for each in MemberFailure])
TAINT = "broken"
"""The key of the taint that operators set and take away."""


def with_wishes(
    dice: Dice, spec: JobSpec, number: int, submit_s: float, seconds: float, licences: Mapping[str, int]
) -> JobSpec:
    """The job, with some of these; `number` is how many came before it, `seconds` how long all takes."""
    drawn = dict(_of_time(dice, spec, submit_s, seconds))
    drawn.update(_of_place(dice, licences))
    drawn.update(_of_others(dice, spec, number))
    return replace(spec, **drawn)


def _of_time(dice: Dice, spec: JobSpec, submit_s: float, seconds: float) -> Iterator[tuple[str, Any]]:
    if dice.chance(NOW_AND_THEN):
        limit = dice.between(1, 3)
        again = RestartWhen.ON_FAILURE
        yield "restart", Restart(again, int(limit), delay_s=30.0 if dice.chance(0.5) else 0.0)
    if dice.chance(RARELY):
        yield "begin_at", submit_s + dice.between(0.0, seconds / 4)
    if dice.chance(RARELY):
        yield "deadline_at", submit_s + (spec.time_limit_s or 0.0) + dice.between(1.0, seconds / 2)
    if dice.chance(RARELY):
        yield "start_within_s", dice.between(1.0, seconds / 4)
    if dice.chance(NOW_AND_THEN):
        yield "on_node_lost", LOST.draw(dice)
    if dice.chance(OFTEN):
        yield "checkpoint_signal", "USR1"
        yield "checkpoint_s", 30.0


def _of_place(dice: Dice, licences: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    if licences and dice.chance(OFTEN):
        yield "licences", {name: 1 + int(dice.roll() * most) for name, most in licences.items()}
    if dice.chance(NOW_AND_THEN):
        yield "scratch_mib", 1_024 * (1 + int(dice.roll() * 60))
    if dice.chance(RARELY):
        yield "affinity", (term_of("node in n1,n2"),)
        yield "relax", ("affinity",)
        yield "relax_after_s", 600.0
    if dice.chance(RARELY):
        yield "preferences", (preference_of("node in n2"),)
    if dice.chance(RARELY):
        yield "tolerations", (toleration_of(TAINT),)
    if dice.chance(NOW_AND_THEN):
        yield "labels", {"app": "x"}
    if dice.chance(RARELY):
        yield "company", (COMPANY.draw(dice),)


def _of_others(dice: Dice, spec: JobSpec, number: int) -> Iterator[tuple[str, Any]]:
    """What it has to do with its members and with other jobs."""
    if (spec.nodes or 1) > 1 and dice.chance(0.6):
        fewer = dice.chance(0.6)
        yield (
            "gang",
            Gang(
                min_nodes=1 if fewer else None,
                assembly_s=300.0 if fewer and dice.chance(0.3) else 0.0,
                on_failure=FAILURES.draw(dice),
                elastic=fewer and dice.chance(0.7),
            ),
        )
        if dice.chance(0.5):
            yield "priority", 10  # others will want its nodes
    if dice.chance(NOW_AND_THEN):
        yield "preemptible", False
    if dice.chance(0.5):
        yield "project", "p" if dice.chance(0.5) else "q"
    if number and dice.chance(NOW_AND_THEN):
        # By name: their numbers are not known yet.
        before = {f"j{1 + int(dice.roll() * number)}" for _ in range(1 + int(dice.roll() * 2))}
        yield "after", tuple(Dependency(UNTIL.draw(dice), job) for job in sorted(before))
        if dice.chance(0.3):
            yield "after_within_s", 3_600.0
