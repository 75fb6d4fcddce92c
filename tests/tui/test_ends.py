"""The panels of the view Pulse about ended jobs, and the wall of GPUs with the names of jobs."""

from __future__ import annotations

from dataclasses import replace

from tests.tui.recorded import LIVE, NOW, everything, job
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.data.model import KEPT_ENDS, ClusterModel
from tui.pulse.ends import failures, last_ends
from tui.pulse.gpu_wall import GpuWall
from tui.pulse.panel import Jump
from wire.names import JobState


def shown(rows: list[object]) -> list[str]:
    return ["".join(text for text, _ in row.pieces) for row in rows]  # type: ignore[attr-defined]


def test_last_ends_have_their_run_times_and_failures_their_causes() -> None:
    done = job(30, JobState.COMPLETED, started_at=NOW - 400, ended_at=NOW - 100)
    failed = job(36, JobState.FAILED, exit_code=1, detail="exit code 1 after 2m10s", ended_at=NOW - 7_200)
    head, first, second = last_ends([done, failed], NOW, 70, 10)
    assert shown([head])[0].startswith("╶ last ends 1 in the last hour")
    assert "ran 5m00s" in shown([first])[0]
    assert shown([second])[0].startswith(" ✗ 36")
    assert (first.jump, second.jump) == (Jump("job", 30), Jump("job", 36))
    _, cause = shown(failures([done, failed], NOW, 70, 10))
    assert "exit code 1 after 2m10s" in cause
    assert cause.endswith("08:40:00")
    assert len(last_ends([done] * 20, NOW, 70, 5)) == 5
    assert "no failure" in shown(failures([done], NOW, 70, 10))[1]


def test_model_keeps_the_jobs_that_ended_last() -> None:
    model = ClusterModel(lambda: NOW)
    many = tuple(job(at, JobState.COMPLETED, ended_at=NOW - at) for at in range(1, KEPT_ENDS + 50))
    model.apply(replace(everything(), jobs=many))
    assert list(model.last_ends) == list(range(KEPT_ENDS, 0, -1))
    model.apply(Changes(LIVE, jobs=(job(900, JobState.FAILED, ended_at=NOW), job(901))))
    assert model.last_ends[-1] == 900
    assert len(model.last_ends) == KEPT_ENDS


def test_wall_names_whole_jobs_and_counts_the_others() -> None:
    model = ClusterModel(lambda: NOW)
    model.apply(everything())
    rows = GpuWall().rows_with_jobs(model.nodes, model.jobs.rows, 60)
    first, second, third, fourth = shown(rows)
    assert "8/8  1 " in first
    assert second.endswith("+4")
    assert all(len(row) <= 60 for row in (first, second, third, fourth))
    assert rows[2].jump == Jump("node", "node-3")


async def test_wide_pulse_opens_the_last_failed_job() -> None:
    screen = Screen(first_view="pulse")
    async with screen.run_test(size=(200, 60)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "last failures" in screen.text())
        pane = screen.view.pane
        await press(pilot, "G")
        for _ in range(60):
            if pane.jump_here == Jump("job", 37):  # type: ignore[attr-defined]
                break
            await press(pilot, "k")
        await press(pilot, "enter")
        await until(pilot, lambda: "ran into its limit of 2h00m" in screen.text())
