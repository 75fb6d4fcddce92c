"""A picture of the real thing: `CORRAL_URL=… python -m tests.tui.picture WIDTHxHEIGHT FILE.svg [KEY…]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cli.spec.spec_to_flags import command_of
from cli.spec.submitter_environment import inherited
from tui.app import CorralApp
from tui.app_interface import CliFunctions
from tui.data.cluster_feed import LiveFeed
from wire.http.client import Client


async def take(size: tuple[int, int], keys: list[str]) -> str:
    """The screen after these keys, with the running controller."""
    app = CorralApp(LiveFeed(Client), Client, CliFunctions(command_of, inherited))
    async with app.run_test(size=size) as pilot:
        await pilot.pause(1.5)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.5)
        await pilot.pause(1.0)
        return app.export_screenshot(title="corral tui", simplify=True)


if __name__ == "__main__":
    width, _, height = sys.argv[1].partition("x")
    Path(sys.argv[2]).write_text(asyncio.run(take((int(width), int(height)), sys.argv[3:])))
