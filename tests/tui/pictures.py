"""Makes the pictures of docs/images from the demo cluster: `make pictures`.

1. Start the cluster of `corral demo`, with jobs that run longer, and let it work for a while (--warm-up).
2. For each size of the terminal, open the terminal UI on this cluster, press the keys of each view, and save
   the screen: as SVG (only at MIDDLE, because the files of all sizes would need megabytes) and as PNG.
3. Follow the tour of docs/tui.md, and save its screens as one animated SVG.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from cli.demo import operator
from cli.demo.cluster import Cluster
from cli.demo.demo import NODES, submit_all
from cli.demo.jobs import extra_jobs
from cli.jobs.selection import ACTIVE
from cli.signals import DeferredSignals
from cli.spec.spec_to_flags import command_of
from cli.spec.submitter_environment import inherited
from tests.browser import CHROMIUM, MISSING, chromium
from tests.tui.animated_svg import animated
from tests.tui.svg_to_png import draw
from tests.tui.tour import steps
from tui.app import CorralApp
from tui.app_interface import CliFunctions
from tui.data.cluster_feed import LiveFeed
from tui.look.theme import THEMES
from wire.http.client import Client, Refused

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZES = {(80, 24): 0.75, (120, 40): 0.6, (200, 60): 0.5}
"""Columns and rows, and the scale of the PNG."""
MIDDLE = (120, 40)
TOUR_SIZE, TOUR_S = (110, 32), 5.0
WAIT_S = 30.0
UNFINISHED = ("loading…", "refining", "not enough time", "computing which")
STRETCH, CROWD = 30.0, 40
"""As in cli/demo/demo.py, but longer: all pictures show the same jobs."""
LONG, TOUR = "forgotten-notebook", "tour"
NAMED = {"!": "exclamation_mark", "/": "slash", "+": "plus"}
Save = Callable[[str, str], Awaitable[None]]

VIEWS: dict[str, tuple[tuple[str, ...], str]] = {
    "pulse": (("0",), "every GPU"),
    "queue": (("1",), "world-model"),
    "job-log": (("1", f"job {LONG}"), "samples/s"),
    "job-why": (("1", f"job {operator.LARGE.name}"), "timeline"),
    "job-attempts": (("1", f"job {LONG}", "tab", "tab"), "attempt"),
    "job-gpus": (("tab",), "GPUs"),
    "job-spec": (("tab",), "spec"),
    "job-events": (("tab",), "events"),
    "nodes": (("2", "end"), "cordoned"),
    "node": (("enter",), "NUMA 1"),
    "events": (("3",), "WHAT HAPPENED"),
    "shares": (("4",), "biology"),
    "quotas": (("5",), "speech"),
    "reservations": (("6",), "new-fans"),
    "calendar": (("c",), "gpu04"),
    "rebalance": (("7",), "PURPOSE"),
    "plan": (("8", "plus", "plus", "plus", "z"), "free GPUs"),
    "what-if": (("D",), "as now"),
}
"""For each view, the keys that lead to it from the view before it, and a text that it shows. `job NAME` opens
the first job with this name.
"""


class Screen:
    """The terminal UI on the demo cluster, without a terminal."""

    def __init__(self, url: str, look: str = "dusk", ascii_only: bool = False) -> None:
        self._url = url
        self.app = CorralApp(
            LiveFeed(lambda: Client(url)),
            lambda: Client(url),
            CliFunctions(command_of, inherited),
            look=look,
            ascii_only=ascii_only,
        )

    async def press(self, pilot: Pilot[Any], keys: Sequence[str], *signs: str) -> None:
        """Press keys, and wait until the screen shows the signs and the answers to its requests."""
        for key in keys:
            if key.startswith("job "):
                self.app.open_job(self._job(key.removeprefix("job ")))
            else:
                await pilot.press(key)
            await pilot.pause(0.2)
        deadline = time.monotonic() + WAIT_S
        while not self._shows(signs) and time.monotonic() < deadline:
            await pilot.pause(0.1)
        await pilot.pause(1.0)

    def svg(self) -> str:
        """The screen."""
        return self.app.export_screenshot(title="corral tui", simplify=True)

    def _shows(self, signs: Sequence[str]) -> bool:
        text = "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())
        return all(sign in text for sign in signs) and not any(word in text for word in UNFINISHED)

    def _job(self, name: str) -> int:
        with Client(self._url) as client:
            return next(job.id for job in client.jobs(states=ACTIVE, limit=500).jobs if job.name == name)


@contextlib.contextmanager
def demo_cluster(warm_up_s: float) -> Iterator[str]:
    """The address of a demo cluster, which gets new jobs until the end."""
    with DeferredSignals() as interrupts, Cluster(interrupts, NODES) as cluster:
        cluster.await_ready()
        ended = threading.Event()

        def keep_busy() -> None:
            more = extra_jobs()
            with cluster.client() as client:
                while not ended.wait(0.5):
                    if client.jobs(states=ACTIVE, limit=1).total < CROWD:
                        part = next(more)
                        with contextlib.suppress(Refused):
                            client.submit(part.spec(cluster.workdir, STRETCH), as_user=part.user)

        with cluster.client() as client:
            operator.break_gpu(client, cluster.workdir, STRETCH)
            submit_all(cluster, client, STRETCH)
            operator.set_policies(client, NODES)
        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            interrupts.nap(warm_up_s)
            yield cluster.url
        finally:
            ended.set()
            busy.join()


async def take_views(screen: Screen, size: tuple[int, int], wanted: Collection[str], save: Save) -> None:
    """Pass the picture of each wanted view to `save`, with its name."""
    async with screen.app.run_test(size=size) as pilot:
        await pilot.pause(2.0)
        for view, (keys, sign) in VIEWS.items():
            await screen.press(pilot, keys, sign)
            if view in wanted:
                await save(f"{view}-{size[0]}x{size[1]}", screen.svg())


async def take_tour(url: str) -> str:
    """The tour of docs/tui.md as an animated picture."""
    screen, frames = Screen(url), list[tuple[str, str]]()
    async with screen.app.run_test(size=TOUR_SIZE) as pilot:
        await pilot.pause(2.0)
        for step in steps()[:-1]:
            await screen.press(pilot, _names(step.keys), *step.signs)
            frames.append((f"[{' '.join(step.keys) or 'corral demo'}] {step.text}", screen.svg()))
            print(TOUR, len(frames), flush=True)
    return animated(frames, TOUR_S)


async def make(url: str, given: argparse.Namespace) -> None:
    """The pictures that the command line asks for."""
    wanted = given.view or (*VIEWS, TOUR)
    async with chromium() as browser:
        tab = await browser.tab()
        for size, scale in ({given.size: 0.75} if given.size else SIZES).items():

            async def save(name: str, svg: str, size: tuple[int, int] = size, scale: float = scale) -> None:
                if size == MIDDLE and not given.size:
                    (given.folder / f"{name.rpartition('-')[0]}.svg").write_text(svg)
                (given.folder / f"{name}.png").write_bytes(await draw(tab, svg, scale))
                print(name, flush=True)

            if {*wanted} - {TOUR}:
                await take_views(Screen(url, given.look, given.ascii), size, wanted, save)
    if TOUR in wanted:
        (given.folder / "tour.svg").write_text(await take_tour(url))


def _names(keys: Sequence[str]) -> list[str]:
    """Textual's names of the keys of the tour."""
    return [
        name
        for key in keys
        for name in ([key.lower()] if key == "Enter" else [NAMED.get(letter, letter) for letter in key])
    ]


def _size(text: str) -> tuple[int, int]:
    width, height = text.split("x")
    return int(width), int(height)


def main() -> int:
    """Make the pictures of the command line's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("view", nargs="*", help=f"only these views: {', '.join(VIEWS)}, {TOUR}")
    parser.add_argument("--size", type=_size, metavar="WIDTHxHEIGHT", help="only this size, and no SVG")
    parser.add_argument("--look", default="dusk", choices=THEMES)
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--warm-up", type=float, default=90.0, metavar="SECONDS")
    parser.add_argument("--url", default="", help="use this running cluster instead of a new one")
    parser.add_argument("--folder", type=Path, default=IMAGES)
    given = parser.parse_args()
    if not CHROMIUM:
        print(f"no pictures: {MISSING}", file=sys.stderr)
        return 1
    given.folder.mkdir(parents=True, exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    with contextlib.nullcontext(given.url) if given.url else demo_cluster(given.warm_up) as url:
        asyncio.run(make(url, given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
