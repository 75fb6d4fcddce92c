"""The rebalance view: proposals, moves, and their results."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Button

from tests.tui.recorded import LIVE, NOW, RecordedClient, Tenants, rebalance
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.data.lists.move_lists import move_rows
from tui.dialogs.confirm import ConfirmDialog
from tui.views.policy.moves import MovesView
from wire.api.service.cluster import EventView


async def test_rebalance_view_lists_proposals_before_moves() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "7")
        await until(pilot, lambda: "proposed" in screen.text())
        lines = screen.text().splitlines()[3:7]
        states = [line.removeprefix("▌").split()[1] for line in lines]
        assert states == ["proposed", "proposed", "moved", "undone"]
        assert "job 10 (llama-405b) starts 2h00m sooner on node-3:0,1,2,3,4,5,6,7" in screen.text()
        assert "7 dpo  alice  node-3:0 → node-2:3" in screen.text()
        await press(pilot, "G")
        assert "node-2 was drained meanwhile" in screen.text()
        await press(pilot, "k", "enter")
        await until(pilot, lambda: screen.view.NAME == "job")
        assert "Rebalance › 2" in screen.text()


async def test_move_asks_first_and_shows_a_refusal() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "7")
        await until(pilot, lambda: "proposed" in screen.text())
        await press(pilot, "M")
        assert isinstance(screen.screen, ConfirmDialog)
        assert screen.screen.query_one("#back", Button).has_focus
        assert "corral rebalance run 3f9a2c41" in screen.text()
        await press(pilot, "enter")
        assert screen.ordered == []
        await press(pilot, "M", "right", "enter")
        await until(pilot, lambda: "1 job being moved" in screen.text())
        assert screen.ordered == [("move", "3f9a2c41")]
        await press(pilot, "j", "M", "right", "enter")
        await until(pilot, lambda: "what it said does not hold any more" in screen.text())
        await press(pilot, "G", "M")
        assert "nothing to do: this move is undone already" in screen.text()


async def test_all_proposals_are_moved_at_once() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "7")
        await until(pilot, lambda: "proposed" in screen.text())
        await press(pilot, "A")
        assert "Move 3 jobs for 2 proposals?" in screen.text()
        assert "0.75 GPU-hours" in screen.text()
        await press(pilot, "right", "enter")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("move", "")]


async def test_question_closes_when_its_proposal_is_gone() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "7")
        await until(pilot, lambda: "proposed" in screen.text())
        await press(pilot, "M")
        screen.model.steps.replace(move_rows(replace(rebalance(), proposals=())))
        event = EventView(990, NOW, "JobQueued", "bob queued job 50", 50, None)
        screen.recording.put(Changes(LIVE, events=(event,)))
        await until(pilot, lambda: not isinstance(screen.screen, ConfirmDialog))
        assert "nothing left to do" in screen.text()
        await press(pilot, "A")
        assert "nothing is proposed" in screen.text()
        assert screen.ordered == []


async def test_a_move_is_complete_as_soon_as_its_job_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovesView, "REASK_S", 1_000_000)
    done = rebalance().moves[0]
    answers = [replace(rebalance(), proposals=(), moves=(replace(done, done_at=None),))]
    monkeypatch.setattr(RecordedClient, "rebalance", lambda _client: answers[-1])
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "7")
        await until(pilot, lambda: "under way" in screen.text())
        answers.append(replace(answers[0], moves=(done,)))
        screen.recording.put(Changes(LIVE, jobs=(screen.model.jobs.rows[done.job],)))
        await until(pilot, lambda: "moved" in screen.text())


@pytest.mark.parametrize(
    ("mode", "said"),
    [("off", '[rebalance] mode = "propose"'), ("propose", "no move would be worth its cost")],
)
async def test_rebalance_view_without_proposals_explains_itself(mode: str, said: str) -> None:
    none = replace(rebalance(), mode=mode, proposals=(), moves=())
    screen = Screen(tenants=Tenants(rebalance=none))
    async with screen.run_test(size=(100, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "7")
        await until(pilot, lambda: said in screen.text())
