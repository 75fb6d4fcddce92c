"""A wide job that waits for quota is not passed by jobs of its tenant that would delay it."""

from __future__ import annotations

from controller.core.model.inputs import job_inputs
from controller.plugins.quotas.local import BorrowTable, ProjectQuotaTable
from tests.controller.core.quota.test_quotas import harness_of, why
from tests.controller.core.quota.test_quotas import started as starts
from tests.engine_harness import EngineHarness, spec
from wire.names import Reason

HOUR = 3_600.0


def started(harness: EngineHarness) -> list[int]:
    """Run a pass; the jobs that it started, each once."""
    return list(dict.fromkeys(starts(harness)))


def vision_at_its_limit(**more: ProjectQuotaTable) -> tuple[EngineHarness, int, int, int]:
    """Project vision may hold 16 GPUs. Job 1 holds 8 for one hour, job 2 holds 7 for two, job 3 needs 16."""
    harness = harness_of(projects={"vision": ProjectQuotaTable(gpus=16), **more})
    for name in ("w1", "w2", "w3", "w4"):
        harness.join(name, gpus=8)
    first = harness.submit(spec(8, project="vision", time_limit_s=HOUR))
    second = harness.submit(spec(7, project="vision", time_limit_s=2 * HOUR))
    assert started(harness) == [first, second]
    wide = harness.submit(spec(16, nodes=2, project="vision", time_limit_s=HOUR))
    assert started(harness) == []
    return harness, first, second, wide


def test_only_jobs_that_end_before_the_reserved_start_pass_a_wide_job() -> None:
    harness, first, second, wide = vision_at_its_limit()
    long = harness.submit(spec(1, project="vision", time_limit_s=3 * HOUR))
    unlimited = harness.submit(spec(1, project="vision"))
    short = harness.submit(spec(1, project="vision", time_limit_s=HOUR))
    other = harness.submit(spec(8, project="speech"), "bob")
    assert sorted(started(harness)) == [short, other]
    harness.exit(short)
    assert started(harness) == []
    reason, sentence = why(harness, long)
    assert reason is Reason.QUOTA
    assert sentence == (
        f"the quota of project 'vision' on GPUs is reserved for job {wide}, which it allows to start in 2h00m"
    )
    for job in (first, second):
        harness.exit(job)
    assert started(harness) == [wide]
    harness.exit(wide)
    assert started(harness) == [long, unlimited]


def test_amount_that_the_wide_job_does_not_need_is_spare() -> None:
    harness = harness_of(projects={"vision": ProjectQuotaTable(gpus=16)})
    for name in ("w1", "w2", "w3"):
        harness.join(name, gpus=8)
    held = harness.submit(spec(8, project="vision", time_limit_s=HOUR))
    assert started(harness) == [held]
    wide = harness.submit(spec(12, nodes=2, project="vision", time_limit_s=HOUR))
    assert started(harness) == []
    jobs = [harness.submit(spec(2, project="vision", time_limit_s=9 * HOUR)) for _ in range(4)]
    assert (
        started(harness) == jobs[:2]
    )  # After job `held` has ended, 16 - 12 = 4 GPUs are left beside `wide`.
    harness.exit(held)
    assert started(harness) == [wide]


def test_borrowers_do_not_delay_a_job_that_waits_to_borrow() -> None:
    lends = {
        "vision": ProjectQuotaTable(gpus=8, borrow=BorrowTable(gpus=16)),
        "speech": ProjectQuotaTable(gpus=8, borrow=BorrowTable(gpus=16)),
        "idle": ProjectQuotaTable(gpus=8),
    }
    harness = harness_of(projects=lends)
    for name in ("w1", "w2", "w3", "w4"):
        harness.join(name, gpus=8)
    held = harness.submit(spec(16, nodes=2, project="speech", time_limit_s=HOUR))
    assert started(harness) == [held]
    wide = harness.submit(spec(24, nodes=3, project="vision", time_limit_s=HOUR))
    assert started(harness) == []
    borrows = harness.submit(spec(4, project="speech", time_limit_s=2 * HOUR))
    brief = harness.submit(spec(4, project="speech", time_limit_s=HOUR / 2))
    assert started(harness) == [brief]
    assert why(harness, borrows)[0] is Reason.QUOTA
    owns = harness.submit(spec(4, project="idle", time_limit_s=HOUR))
    assert started(harness) == [owns]
    harness.tell(
        job_inputs.Cancel(borrows, "ada")
    )  # Without `held` it would be within the quota of its project.
    harness.exit(held)
    harness.exit(brief)
    harness.exit(owns)
    assert started(harness) == [wide]
