"""GPU usage of attempts, summed also over a restart of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.attempts.spool import AttemptKey
from agent.gpus.process_owners import GpuHolder
from agent.gpus.usage_meter import SAVE_INTERVAL_S, UsageMeter
from wire.agent.orders import GpuHold
from wire.agent.reports import AttemptStatus, GpuProcess, GpuSample, GpuUse

OVER = AttemptStatus(1, 1, pid=9, started_at=0.0, ended_at=100.0, code=0)


def holder(*holds: GpuHold, job: int = 1) -> GpuHolder:
    return GpuHolder(job, 1, "ada", "train", 9, None, holds)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "1.1").mkdir()
    (tmp_path / "2.1").mkdir()
    return tmp_path


def meter_in(place: Path) -> UsageMeter:
    def where(key: AttemptKey) -> str:
        return f"{place}/{key[0]}.{key[1]}"

    return UsageMeter(where)


def used(status: AttemptStatus) -> GpuUse:
    assert status.usage is not None
    assert status.usage.gpu is not None
    return status.usage.gpu


def test_usage_of_two_gpus_over_time(place: Path) -> None:
    meter = meter_in(place)
    both = [holder(GpuHold("a", 1000), GpuHold("b", 1000))]
    meter.add_samples(both, [], (), 0.0)
    for second in range(1, 11):
        load = 100 if second > 5 else 0
        samples = [GpuSample("a", load, 1000 * second, 360), GpuSample("b", load, 500, 360)]
        meter.add_samples(both, samples, (), float(second))
    use = used(meter.with_usage(OVER))
    assert (use.mean, use.p95, use.peak_mib) == (50.0, 100, 10_500)
    assert use.wh == pytest.approx(2.0)


def test_gpu_share_counts_as_one_gpu_with_its_part_of_memory_and_energy(place: Path) -> None:
    meter = meter_in(place)
    held = [holder(GpuHold("a", 250)), holder(GpuHold("a", 750), job=2)]
    for second in range(11):
        meter.add_samples(held, [GpuSample("a", 80, 8000, 360)], (), float(second))
    mine = used(meter.with_usage(OVER))
    other = used(meter.with_usage(AttemptStatus(2, 1, 9, 0.0, 9.0)))
    assert (mine.mean, mine.peak_mib, other.peak_mib) == (80.0, 2000, 6000)
    assert mine.wh + other.wh == pytest.approx(1.0, abs=0.001)


def test_memory_of_processes_outside_the_queue_is_not_the_jobs(place: Path) -> None:
    meter, held = meter_in(place), [holder(GpuHold("a", 1000), GpuHold("b", 1000))]
    samples = [GpuSample("a", 80, 14_600, 360), GpuSample("b", 80, 600, 360)]
    there = [GpuProcess("a", 9, "ada", "train", 10_000, 1), GpuProcess("a", 7, "bob", "play", 4_000, None)]
    for second in range(3):
        meter.add_samples(held, samples, there, float(second))
    assert used(meter.with_usage(OVER)).peak_mib == 14_600 - 4_000 + 600


def test_memory_on_a_share_of_a_gpu_is_that_of_the_jobs_own_processes(place: Path) -> None:
    meter, held = meter_in(place), [holder(GpuHold("a", 500)), holder(GpuHold("a", 500), job=2)]
    there = [GpuProcess("a", 9, "ada", "train", 2_000, 1), GpuProcess("a", 7, "bob", "play", 4_000, None)]
    for second in range(3):
        meter.add_samples(held, [GpuSample("a", 80, 10_000, 360)], there, float(second))
    assert used(meter.with_usage(OVER)).peak_mib == 2_000
    unknown = used(meter.with_usage(AttemptStatus(2, 1, 9, 0.0, 9.0)))
    assert unknown.peak_mib == 3_000, "half of all but the stranger's, because the driver does not say more"


def test_usage_is_continued_from_the_file_by_a_new_agent(place: Path) -> None:
    first, one = meter_in(place), [holder(GpuHold("a", 1000))]
    for moment in (0.0, SAVE_INTERVAL_S, 2 * SAVE_INTERVAL_S):
        first.add_samples(one, [GpuSample("a", 100, 4000, 100)], (), moment)
    second = meter_in(place)
    for moment in (500.0, 500.0 + SAVE_INTERVAL_S, 500.0 + 2 * SAVE_INTERVAL_S):
        second.add_samples(one, [GpuSample("a", 0, 100, 100)], (), moment)
    use = used(second.with_usage(OVER))
    assert (use.mean, use.peak_mib) == (50.0, 4000)


def test_usage_of_running_attempts_so_far(place: Path) -> None:
    meter, one, two = meter_in(place), holder(GpuHold("a", 1000)), holder(GpuHold("b", 1000), job=2)
    samples = [GpuSample("a", 100, 4000, 360), GpuSample("b", 50, 9000, 720)]
    for second in range(16):
        meter.add_samples([one] if second < 5 else [one, two], samples, (), float(second))
    assert meter.uses([one]).keys() == {(1, 1)}
    uses = meter.uses([one, two, holder(GpuHold("c", 1000), job=3)])
    assert uses.keys() == {(1, 1), (2, 1)}, "a job without a reading has no usage"
    first, second_job = uses[1, 1], uses[2, 1]
    assert (first.mean, first.peak_mib, second_job.mean, second_job.peak_mib) == (100.0, 4000, 50.0, 9000)
    assert first.wh == pytest.approx(1.5)
    assert second_job.wh == pytest.approx(2.2)
    assert used(meter.with_usage(OVER)) == first


def test_usage_of_unobserved_time_is_not_invented(place: Path) -> None:
    meter, one = meter_in(place), [holder(GpuHold("a", 1000))]
    assert meter.with_usage(OVER) == OVER
    meter.add_samples(one, [GpuSample("a", 100)], (), 0.0)
    meter.add_samples(one, [GpuSample("a", 100)], (), 10_000.0)
    assert meter.with_usage(OVER) == OVER, "what happened in a long silence"
    running = AttemptStatus(1, 1, pid=9, started_at=0.0)
    meter.add_samples(one, [GpuSample("a", 100)], (), 10_001.0)
    assert meter.with_usage(running) == running
    (place / "2.1" / "gpu-use").write_text("[[1,2],")
    assert meter.with_usage(AttemptStatus(2, 1, 9, 0.0, 9.0)).usage is None
