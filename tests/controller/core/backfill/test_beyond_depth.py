"""Conservative backfill with more waiting jobs than may have reservations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.backfill.conservative.queue_reservations import QueueReservations
from controller.core.model.job import Job
from controller.plugins.backfill.kinds import Conservative
from controller.plugins.quotas.local import QuotaTable
from tests.controller.core.quota.test_quotas import ruled
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.spec import JobSpec

HOUR = 3_600.0


def harness_of(depth: int | None, *nodes: str) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative(depth=depth)))
    for name in nodes:
        harness.join(name, gpus=8)
    return harness


def with_quota(depth: int | None) -> EngineHarness:
    """One node of 8 GPUs. User ada may use 8 GPUs."""
    pipeline = ruled(users={"ada": QuotaTable(gpus=8)})
    harness = EngineHarness(replace(pipeline, backfill=Conservative(depth=depth)))
    harness.join("a", gpus=8)
    return harness


def gpus(count: float, hours: float, **more: object) -> JobSpec:
    return spec(count, time_limit_s=hours * HOUR, grace_s=0.0, **more)


# One node of 8 GPUs, 6 in use for two hours. Two jobs of 8 GPUs wait with reservations, then one of these:
@pytest.mark.parametrize(
    ("behind", "starts"),
    [
        (gpus(2, 2), True),
        (gpus(1, 1), True),
        (gpus(2, 2.001), False),
        (gpus(1, 9), False),
        (gpus(3, 1), False),
    ],
)
def test_job_behind_the_depth_starts_if_it_delays_no_reservation(behind: JobSpec, starts: bool) -> None:
    harness = harness_of(2, "a")
    harness.submit(gpus(6, 2))
    harness.tick()
    first, second = harness.submit(gpus(8, 1)), harness.submit(gpus(8, 1))
    third = harness.submit(behind)
    assert [start.job for start in harness.tick()] == ([third] if starts else [])
    reserved = harness.engine.cycle.reservations.by_job
    assert {job: each.starts_at - harness.now for job, each in reserved.items()} == {
        first: 2 * HOUR,
        second: 3 * HOUR,
    }


def test_jobs_that_run_longer_than_one_that_does_not_fit_are_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []
    reserve_now = QueueReservations.reserve_now

    def counting(self: QueueReservations, job: Job, now: float) -> bool:
        searched.append(job.id)
        return reserve_now(self, job, now)

    monkeypatch.setattr(QueueReservations, "reserve_now", counting)
    harness = harness_of(1, "a")
    harness.submit(gpus(7, 1))
    harness.tick()
    harness.submit(gpus(8, 1))
    nine, _, eight, _, short, last = (harness.submit(gpus(1, hours)) for hours in (9, 9.5, 8, 8.5, 0.5, 0.4))
    assert [start.job for start in harness.tick()] == [short]
    # The jobs of 9.5 and 8.5 hours run longer than a job that did not fit.
    assert searched == [nine, eight, short, last]
    searched.clear()
    harness.submit(gpus(8, 1))
    harness.tick()
    assert searched == [], "no request fits now"


def test_job_behind_the_depth_does_not_take_quota_of_a_job_with_a_reservation() -> None:
    def started(depth: int | None) -> list[int]:
        harness = with_quota(depth)
        harness.join("b", gpus=8)
        busy = [harness.submit(gpus(8, 1), user="bob"), harness.submit(gpus(7, 9), user="bob")]
        harness.tick()
        assert all(harness.job(job).attempt for job in busy)
        # Ada's job of 8 GPUs starts in an hour. A job of 1 GPU fits beside bob's job of 7 GPUs now and delays
        # no reservation of GPUs, but in an hour ada would have 7 GPUs of her quota left.
        wide = harness.submit(gpus(8, 1), user="ada")
        narrow = harness.submit(gpus(1, 9), user="ada")
        other = harness.submit(gpus(1, 9), user="cy")
        harness.tick()
        return [job - wide for job in (wide, narrow, other) if harness.job(job).attempt]

    assert started(1) == started(None) == [2]


def test_first_jobs_of_a_lane_within_the_quota_have_reservations() -> None:
    harness = with_quota(5)
    harness.submit(gpus(8, 2), user="bob")
    harness.tick()
    flood = [harness.submit(gpus(2, 1), user="ada") for _ in range(50)]
    last = harness.submit(gpus(8, 1), user="bob")
    harness.tick()
    # Four jobs of ada fill her quota. The 46 others do not count for the depth.
    assert list(harness.engine.cycle.reservations.by_job) == [*flood[:4], last]
