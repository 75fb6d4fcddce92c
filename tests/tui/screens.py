"""The application on a recorded cluster, and functions that wait for its effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot

from cli.spec.spec_to_flags import command_of
from tests.limits import PATIENCE_S
from tests.tui.recorded import NOW, RecordedClient, RecordedFeed, Tenants, everything
from tui.app import CorralApp
from tui.app_interface import CliFunctions
from tui.data.cluster_feed import Changes


class Screen(CorralApp):
    """The terminal UI on a recorded cluster, with access to the recording."""

    def __init__(
        self,
        *first: Changes,
        output: bytes = b"",
        refuse: frozenset[int] = frozenset(),
        read_only: bool = False,
        look: str = "dusk",
        ascii_only: bool = False,
        tenants: Tenants | None = None,
        first_view: str = "queue",
    ) -> None:
        self.recording = RecordedFeed(*(first or (everything(),)))
        self.ordered: list[tuple[str, object]] = []
        super().__init__(
            self.recording,
            lambda: RecordedClient(self.ordered, output, refuse, tenants),
            CliFunctions(command_of, lambda spec: spec),
            read_only=read_only,
            look=look,
            ascii_only=ascii_only,
            first_view=first_view,
            clock=lambda: NOW,
        )

    def text(self) -> str:
        """The text of the screen."""
        lines = self.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in lines)


async def until(pilot: Pilot[Any], condition: Callable[[], object]) -> None:
    """Let the application work until something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pilot.pause()


async def settled(pilot: Pilot[Any]) -> None:
    """Everything that was fed has been shown."""
    app = pilot.app
    assert isinstance(app, Screen)
    await until(pilot, lambda: app.recording.empty)
    await pilot.pause()


NAMED = {
    "space": " ",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "asterisk": "*",
    "ampersand": "&",
    "left_parenthesis": "(",
}


def burst(screen: Screen, *keys: str) -> None:
    """Keys in one go, as after a slow line or by a paste."""
    for key in keys:
        text = NAMED.get(key, key)
        letter = text if len(text) == 1 else None
        screen.post_message(Key(_character_to_key(text) if letter else text, letter))


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, and wait until the application has handled them."""
    screen = pilot.app
    assert isinstance(screen, Screen)
    burst(screen, *keys)
    await pilot.pause()
    await until(pilot, lambda: not screen.busy)
    await pilot.pause()
