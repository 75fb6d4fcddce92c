"""The loads of GPUs over the last 10 minutes: which rows are requested, and where they are drawn."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.tui.recorded import RecordedClient
from tests.tui.screens import Screen, press, settled, until
from tui.data.load_history import KEPT, LoadHistory, ShownRows, mean
from tui.views.queue import QueueView
from wire.api.problem import Problem
from wire.api.service.cluster import GpuLoadView
from wire.http.client import Refused

Request = tuple[tuple[str, ...], tuple[int, ...]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The rows of each request for loads."""
    sent: list[Request] = []
    answer = RecordedClient.gpu_loads

    def recorded(
        self: RecordedClient, *, nodes: Iterable[str] = (), jobs: Iterable[int] = (), points: int = 8
    ) -> GpuLoadView:
        sent.append((tuple(nodes), tuple(jobs)))
        return answer(self, nodes=nodes, jobs=jobs, points=points)

    monkeypatch.setattr(RecordedClient, "gpu_loads", recorded)
    return sent


async def test_queue_requests_only_the_visible_running_jobs(requests: list[Request]) -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 9)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "▇" in screen.text())
        assert requests[0] == ((), (1, 2, 3, 4)), "the screen has four rows"
        lines = screen.text().split("\n")
        assert "▇" in lines[3]
        assert "▁▁▁▁▁▁▁" in lines[6], "job 4 is idle"
        await press(pilot, "G", "g", *"jjjjj")
        view = screen.view
        assert isinstance(view, QueueView)
        view.tick()
        await until(pilot, lambda: not view._loads.missing)
        assert 6 in requests[-1][1]


async def test_nodes_and_the_node_view_draw_the_loads_of_gpus(requests: list[Request]) -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "2")
        await until(pilot, lambda: requests and requests[-1][0])
        assert requests[-1] == (("node-1", "node-2", "node-3", "node-4"), ())
        await until(pilot, lambda: screen.text().count("▇") > 8)
        await press(pilot, "enter")
        await until(pilot, lambda: screen.view.NAME == "node" and screen.text().count("▇") >= 8)


async def test_earlier_controller_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(*_: object, **__: object) -> GpuLoadView:
        asked.append(1)
        raise Refused(404, Problem("not_found", "there is no such route"))

    monkeypatch.setattr(RecordedClient, "gpu_loads", refuse)
    screen = Screen()
    async with screen.run_test(size=(120, 20)) as pilot:
        await settled(pilot)
        view = screen.queue_view
        await until(pilot, lambda: asked and not view._loads.missing)
        for _ in range(30):
            view.tick()
        await pilot.pause()
        assert len(asked) == 1


def test_history_is_bounded() -> None:
    history = LoadHistory()
    for first in range(0, KEPT + 100, 50):
        history.take(GpuLoadView({}, {str(job): (1,) for job in range(first, first + 50)}, 75.0, 0.0))
    assert len(history.jobs) <= KEPT + 50
    assert history.has(ShownRows(jobs=(KEPT + 60,)))


def test_mean_leaves_out_unknown_loads() -> None:
    assert mean([(None, 10, None), (None, 30, 50)]) == [None, 20, 50]
    assert mean([]) == []
