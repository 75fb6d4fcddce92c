"""Words that can be clicked, and rows with a background of their own."""

from __future__ import annotations

import pytest

from tests.tui.recorded import LIVE, job
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.dialogs.help import HelpDialog
from tui.dialogs.menu import Menu
from wire.names import JobState


@pytest.mark.parametrize("width", [60, 80, 120, 200])
async def test_names_and_numbers_of_views_can_be_clicked(width: int) -> None:
    screen = Screen()
    async with screen.run_test(size=(width, 24)) as pilot:
        await settled(pilot)
        for number, root in enumerate(screen.roots):
            line = screen.text().split("\n")[1]
            await pilot.click(offset=(line.index(f"{number}"), 1))
            await until(pilot, lambda root=root: screen.view is root)
            assert root.title() in screen.text().split("\n")[1]


async def test_keys_of_the_footer_and_the_alarms_can_be_clicked() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        footer = screen.text().split("\n")[-1]
        await pilot.click(offset=(footer.index("help"), 23))
        await until(pilot, lambda: isinstance(screen.screen, HelpDialog))
        await press(pilot, "escape")
        await pilot.click(offset=(footer.index("open"), 23))
        await until(pilot, lambda: screen.view.NAME == "job")
        await pilot.click(offset=(screen.text().split("\n")[0].index("▲ 4"), 0))
        await until(pilot, lambda: isinstance(screen.screen, Menu))


def background(screen: Screen, sign: str) -> object:
    """The background of the row that contains the text `sign`."""
    strips = screen.screen._compositor.render_strips()
    (strip,) = [strip for strip in strips if sign in strip.text]
    return next(part.style.bgcolor for part in strip if sign.split()[0] in part.text)


@pytest.mark.parametrize("look", ["dusk", "dawn", "horizon"])
async def test_failed_jobs_and_jobs_that_wait_long_have_backgrounds_of_their_own(look: str) -> None:
    screen = Screen(look=look)
    async with screen.run_test(size=(120, 44)) as pilot:
        await settled(pilot)
        screen.recording.put(
            Changes(LIVE, jobs=(job(12, JobState.QUEUED, name="latecomer", waits_long=True),))
        )
        await until(pilot, lambda: "latecomer" in screen.text())
        plain = background(screen, "sweep")
        late, failed = background(screen, "latecomer"), background(screen, "exit 1")
        assert len({plain, late, failed}) == 3
        await press(pilot, "slash", *"waits:long", "enter")
        await until(pilot, lambda: "1 of" in screen.text())
        assert "latecomer" in screen.text()
