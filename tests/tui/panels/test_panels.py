"""The panels in the free space below short lists: jobs, fairness, limits, reservations and free GPUs."""

from __future__ import annotations

from dataclasses import replace

from tests.tui.recorded import NOW, RecordedClient, everything, gpu, job, node, quotas, reservations
from tests.tui.test_pulse import history
from tui.data.cluster_feed import Changes
from tui.data.model import ClusterModel
from tui.look.styled_lines import Piece, length
from tui.panels.events import node_events
from tui.panels.fairness import fairness_lines, fairness_reports
from tui.panels.graphs import graph_lines
from tui.panels.jobs import job_lines
from tui.panels.limits import limit_lines
from tui.panels.reservations import free_graph, free_over_time, overlap_lines
from tui.plan.timeline import Timeline
from wire.api.jobs import Held, JobView
from wire.api.nodes import GpuShare
from wire.names import GpuHealth, JobState, NodeState


def model(*changes: Changes) -> ClusterModel:
    made = ClusterModel(lambda: NOW)
    for each in changes or (everything(),):
        made.apply(each)
    return made


def text(lines: list[list[Piece]]) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in lines]


def running(number: int, name: str, gpus: int, limit_s: float | None) -> JobView:
    held = (Held(name, 8000, 65536, tuple(GpuShare(at, f"GPU-{at:08x}", 1000) for at in range(gpus))),)
    return job(
        number, JobState.RUNNING, gpus=float(gpus), held=held, started_at=NOW - 600, time_limit_s=limit_s
    )


# -- jobs and events -------------------------------------------------------------------------------


def test_jobs_of_a_user_are_running_ones_by_their_end_and_then_waiting_ones() -> None:
    jobs = (running(1, "n", 2, None), running(2, "n", 1, 1_200.0), job(12), job(11, user="other"))
    made = model(replace(everything(), jobs=tuple(replace(each, user=each.user or "x") for each in jobs)))
    wanted = {1, 2, 12}
    head, *rows = text(job_lines("jobs of x", lambda each: each.id in wanted, made, 140, 10))
    assert "jobs of x  2 running  1 waiting" in head
    assert [row.split()[2] for row in rows] == ["2", "1", "12"]
    assert "runs 10m00s, ends by 10:50:00" in rows[0]
    assert "no time limit" in rows[1]
    assert "waits" in rows[2]


def test_jobs_share_the_lines_if_there_are_too_many() -> None:
    lines = text(job_lines("all", lambda _: True, model(), 140, 7))
    assert len(lines) == 7
    assert sum("queued" in line for line in lines) == 3
    assert job_lines("all", lambda _: True, model(), 140, 2) == []
    assert text(job_lines("none", lambda _: False, model(), 140, 7))[1:] == [" none"]


def test_events_of_a_node_are_the_newest_first() -> None:
    head, *rows = text(node_events("node-3", model(), 120, 10))
    assert "events of node-3" in head
    assert ["cordoned" in rows[0], "started" in rows[1], "placed" in rows[2]] == [True, True, True]
    assert node_events("node-9", model(), 120, 10) == []


# -- fairness, limits and graphs -------------------------------------------------------------------


def test_fairness_compares_used_and_entitled_hours_of_an_hour_a_day_and_a_week() -> None:
    reports = fairness_reports(RecordedClient([]), NOW)
    lines = text(fairness_lines(reports, 200, 40))
    assert "GPU-hours by project" in lines[1]
    assert lines[2].split()[:6] == ["last", "hour", "last", "day", "last", "week"]
    (nlp,) = (line for line in lines if line.startswith(" nlp"))
    assert nlp.index("12.0/8.0") < nlp.index("288/192") < nlp.index("2,016/1,344")
    assert any("job 10: 4h50m" in line for line in lines)
    assert len(text(fairness_lines(reports, 200, 7))) <= 7
    assert all(length(line) <= 120 for line in fairness_lines(reports, 120, 40))


def test_quotas_near_their_limits_come_first() -> None:
    lines = text(limit_lines(quotas(), 160, 10))
    assert "nearest to their limits" in lines[1]
    assert lines[2].split()[:3] == ["project", "vision", "gpus"]
    assert "125%" in lines[2]
    assert lines[3].split()[:3] == ["user", "alice", "gpus"]
    assert not any("user *" in line for line in lines)
    assert limit_lines((), 160, 10) == []


def test_graphs_need_samples_and_room() -> None:
    made = model()
    assert graph_lines(made, 160, 20) == []
    made.apply(Changes(made.connection, minutes=history()))
    lines = text(graph_lines(made, 160, 20))
    assert len(lines) == 15
    assert "GPUs held" in lines[1]
    assert "waiting" in lines[1]
    assert graph_lines(made, 160, 6) == []
    assert "waiting" not in text(graph_lines(made, 90, 20))[1]


# -- reservations ----------------------------------------------------------------------------------


def test_jobs_that_may_run_into_a_reservation_are_named() -> None:
    jobs = (running(2, "node-2", 8, 10_800.0), running(3, "node-3", 1, None), running(4, "node-3", 1, 900.0))
    made = model(replace(everything(), jobs=jobs))
    lines = text(overlap_lines(reservations(), made, 160, 20))
    assert "jobs that may run into a reservation" in lines[1]
    assert "course" in lines[2]
    assert "2 jobs may still run" in lines[2]
    assert lines[3].split()[0] == "3"
    assert "no time limit" in lines[3]
    assert "50m00s too late" in lines[4]
    assert "no job runs into it" in lines[5]
    assert not any("demo" in line for line in lines), "it has begun"
    assert text(overlap_lines(reservations(), made, 160, 5))[-1] == " and 2 more lines"
    assert overlap_lines(reservations(), made, 160, 4) == []


def test_free_gpus_rise_at_the_ends_of_jobs_and_fall_during_reservations() -> None:
    cordoned = gpu(7, health=GpuHealth.CORDONED)
    nodes = (
        node("node-1", [gpu(at) for at in range(8)]),
        node("node-2", [*(gpu(at) for at in range(7)), cordoned]),
        node("node-4", [gpu(at) for at in range(8)], NodeState.DRAINED),
    )
    jobs = (running(1, "node-1", 6, 600.0 + 3_600.0), running(2, "node-2", 4, None))
    made = model(replace(everything(), nodes=nodes, jobs=jobs))
    line = Timeline(NOW - 3_600.0, 8 * 3_600.0, 8)
    (course,) = (row for row in reservations() if row.spec.name == "course")
    course = replace(course, nodes=("node-1",), starts_at=NOW + 7_200.0, ends_at=NOW + 14_400.0)
    free = free_over_time([course], made, line)
    assert free == [None, 5.0, 11.0, 3.0, 3.0, 11.0, 11.0, 11.0]
    assert free_over_time([], made, line) == [None, 5.0, *[11.0] * 6]
    graph = text(free_graph([course], made, line, 8, 7))
    assert "free GPUs" in graph[1]
    assert graph[2].startswith("    11┤")
    assert free_graph([course], made, line, 8, 3) == []
