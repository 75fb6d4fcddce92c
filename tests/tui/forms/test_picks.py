"""Names that the user chooses in a form with Ctrl+N and Ctrl+P."""

from __future__ import annotations

from textual.widgets import Input

from tests.tui.recorded import everything
from tests.tui.screens import Screen, press, settled, until


def focus(screen: Screen, name: str) -> Input:
    line = next(each for each in screen.screen.query(Input) if each.name == name)
    line.focus()
    return line


async def test_names_are_shown_beside_the_field_and_chosen_in_turn() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "N")
        queue = focus(screen, "queue")
        await until(pilot, lambda: "^n default  night" in screen.text())
        await press(pilot, "ctrl+n", "ctrl+n")
        assert queue.value == "night"
        assert "--queue night" in screen.text()
        await press(pilot, "ctrl+p")
        assert queue.value == "default"
        assert "--queue" not in screen.text()
        project = focus(screen, "project")
        await press(pilot, *["backspace"] * 10, "s")
        await until(pilot, lambda: "^n speech" in screen.text())
        await press(pilot, "ctrl+n")
        assert project.value == "speech"


async def test_several_nodes_are_chosen_one_after_the_other() -> None:
    screen = Screen(everything(), first_view="reservations")
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "N")
        nodes = focus(screen, "nodes")
        await until(pilot, lambda: "^n node-1" in screen.text())
        await press(pilot, "ctrl+n", "space", "ctrl+n", "ctrl+n")
        assert nodes.value == "node-1 node-2"
        assert "--node node-1 --node node-2" in screen.text()


async def test_error_of_a_field_is_shown_instead_of_the_names() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "N")
        focus(screen, "priority")
        await until(pilot, lambda: "^n critical  high" in screen.text())
        await press(pilot, "x")
        await until(pilot, lambda: "^n " not in screen.text())
