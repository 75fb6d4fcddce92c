"""Names with control characters, and screens of any size."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from textual.events import Resize
from textual.geometry import Size

from tests.tui.recorded import (
    Tenants,
    events,
    everything,
    jobs,
    nodes,
    quotas,
    rebalance,
    reservations,
    shares,
)
from tests.tui.screens import Screen, press, settled, until
from tests.tui.test_app import LOG
from tui.data.cluster_feed import Changes

EVIL = "\x1b[2J\x1b]52;c;eA==\x07[/red][@click=app.quit]\u202eab\nc\t\x9b1m\ufeff\ud800"


def hostile() -> Changes:
    """Everything a user may name, named badly."""
    rows = tuple(
        replace(row, name=EVIL, user=EVIL, project=EVIL, queue=EVIL, label=EVIL, detail=EVIL)
        for row in jobs()
    )
    hosts = tuple(
        replace(host, name=f"{EVIL}{at}", why=EVIL, labels={EVIL: EVIL}) for at, host in enumerate(nodes())
    )
    said = tuple(replace(event, kind=EVIL, text=EVIL, node=EVIL) for event in events())
    return replace(everything(), jobs=rows, nodes=hosts, events=said)


def hostile_tenants() -> Tenants:
    """The same for data that is requested."""
    moved = rebalance()
    return Tenants(
        tuple(
            replace(share, path=(*(EVIL for _ in share.path), str(at)), share=EVIL, stopped=EVIL)
            for at, share in enumerate(shares())
        ),
        tuple(replace(quota, name=f"{EVIL}{at}", edited=True) for at, quota in enumerate(quotas())),
        tuple(
            replace(
                row,
                spec=replace(row.spec, name=f"{EVIL}{at}", users=(EVIL,), projects=(EVIL,), why=EVIL),
                nodes=(EVIL,),
                by=EVIL,
            )
            for at, row in enumerate(reservations())
        ),
        replace(
            moved,
            proposals=tuple(
                replace(
                    row,
                    kind=EVIL,
                    node=EVIL,
                    label=EVIL,
                    name=EVIL,
                    moves=tuple(replace(move, label=EVIL, name=EVIL, user=EVIL) for move in row.moves),
                )
                for row in moved.proposals
            ),
            moves=tuple(
                replace(row, label=EVIL, origin=(EVIL,), node=EVIL, undone=EVIL) for row in moved.moves
            ),
        ),
    )


async def test_hostile_names_are_escaped_in_every_view() -> None:
    screen = Screen(hostile(), output=(EVIL * 9).encode("utf-8", "replace"), tenants=hostile_tenants())
    async with screen.run_test(size=(160, 40)) as pilot:
        await settled(pilot)
        for keys in (
            ("1",),
            ("2",),
            ("2", "enter"),
            ("3",),
            ("1", "enter"),
            ("1", "C"),
            ("escape", "question_mark"),
            ("4",),
            ("4", "E"),
            ("5",),
            ("5", "E"),
            ("5", "U"),
            ("6",),
            ("6", "C"),
            ("7",),
            ("7", "A"),
            ("2", "D"),
        ):
            await press(pilot, *keys[:1])
            await until(pilot, lambda: "asking" not in screen.text())
            await press(pilot, *keys[1:])
            await pilot.pause()
            text = screen.text()
            assert not [
                letter for letter in text.replace("\n", "") if ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0
            ]
            assert not set(text) & set("\u202e\ufeff\ud800")
            await press(pilot, "escape")
        await press(pilot, "1", "y")
        assert "\x1b" not in "".join(screen.menus.commands())


async def test_random_resizes() -> None:
    dice = random.Random(11)
    screen = Screen(output=LOG.encode())
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        places = [
            "1",
            "2",
            "4",
            "5",
            "7",
            "question_mark",
            "escape",
            "N",
            "escape",
            "G",
            "2",
            "enter",
        ]
        for number in range(96):
            if number % 8 == 0:
                await press(pilot, places[number // 8])
            width, height = dice.choice((1, 7, 20, 40, 60, 80, 133, 250)), dice.choice((1, 2, 5, 14, 24, 70))
            screen.post_message(Resize(Size(width, height), Size(width, height)))
            await pilot.pause(0.002)
            assert screen.size == (width, height)
        await pilot.resize_terminal(80, 24)
        await press(pilot, "escape", "escape", "1")
        assert "GPUs" in screen.text()


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
async def test_every_line_of_the_frame_is_drawn(size: tuple[int, int]) -> None:
    screen = Screen()
    async with screen.run_test(size=size) as pilot:
        await settled(pilot)
        lines = screen.text().splitlines()
        assert len(lines) == size[1]
        assert lines[0].startswith(" corral demo")
        assert lines[0].rstrip().endswith("● live")
        assert "0 Pulse  1 Queue" in lines[1].replace("   ", "  ")
        assert "q quit" in lines[-1]
