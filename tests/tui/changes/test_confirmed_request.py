"""Changes that the controller refuses because their effect is no longer the shown one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.tui.recorded import RecordedClient
from tests.tui.screens import Screen, press, settled, until
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.form_dialog import FormDialog
from wire.api.forecasts import WhatIf, WhatIfAnswer
from wire.api.problem import EFFECT_CHANGED, Problem
from wire.http.client import Refused

CHANGED = "the effect is not the shown one any more: job 12 is RUNNING, attempt 1 (was QUEUED, attempt 0)"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of what-if answers that changes named. The controller refuses the change with the first id."""
    sent: list[str] = []
    recorded = RecordedClient.what_if
    answers = 0

    def what_if(client: RecordedClient, changes: WhatIf, **options: Any) -> WhatIfAnswer:
        nonlocal answers
        answers += 1
        return replace(recorded(client, changes, **options), id=f"answer-{answers}")

    @contextmanager
    def expecting(_client: RecordedClient, id: str) -> Iterator[None]:
        sent.append(id)
        if len(sent) == 1:
            raise Refused(409, Problem("conflict", CHANGED, EFFECT_CHANGED, "Confirm again."))
        yield

    monkeypatch.setattr(RecordedClient, "what_if", what_if)
    monkeypatch.setattr(RecordedClient, "expecting", expecting)
    return sent


async def test_dialog_opens_again_and_says_what_has_changed(sent: list[str]) -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 30)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(12)
        await press(pilot, "C")
        await until(pilot, lambda: screen.screen._trial.shown_id)
        first = screen.screen
        await press(pilot, "right", "enter")
        await until(pilot, lambda: isinstance(screen.screen, ConfirmDialog) and screen.screen is not first)
        await until(pilot, lambda: "QUEUED, attempt 0)" in screen.text())
        assert screen.screen.query_one("#back").has_focus
        assert screen.ordered == []
        await until(pilot, lambda: screen.screen._trial.shown_id)
        await press(pilot, "right", "enter")
        await until(pilot, lambda: screen.ordered == [("cancel", 12)])
        assert sent == ["answer-1", "answer-2"]


async def test_form_stays_open_and_shows_the_new_effect(sent: list[str]) -> None:
    screen = Screen()
    async with screen.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        screen.model.jobs.follow(12)
        await press(pilot, "E", *["backspace"] * 6, *"80")
        form = screen.screen
        assert isinstance(form, FormDialog)
        await until(pilot, lambda: form._trial.shown_id)
        before = form._trial.shown_id
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "job 12 is RUNNING, attempt 1" in screen.text())
        await until(pilot, lambda: form._trial.shown_id not in ("", before))
        assert screen.screen is form
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        assert sent == [before, form._trial.shown_id]


async def test_all_failures_of_a_bulk_change_are_listed_with_their_reasons() -> None:
    screen = Screen(refuse=frozenset({2, 3}))
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "space", "space", "space", "C", "right", "enter")
        await until(pilot, lambda: "1 cancelled, 2 failed" in screen.text())
        lines = [line for line in screen.text().splitlines() if "has already ended" in line]
        assert any("job 2 has" in line for line in lines)
        assert any("job 3 has" in line for line in lines)
        await press(pilot, "down", "enter")
        await until(pilot, lambda: screen.view.NAME == "job")
        assert [each.id for each in screen.view.jobs()] == [3]
