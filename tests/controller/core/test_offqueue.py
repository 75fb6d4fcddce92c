"""Who works past the queue stands in a ledger, and pays for it where the site wants that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import inputs, offqueue
from controller.core.events import StrangerCame, StrangerLeft
from controller.core.inputs import StrangerGone, StrangerSeen
from controller.core.notes import noted, recall
from controller.core.rows import NoteRow
from controller.core.shares import Sharing
from controller.core.state import State
from controller.core.strangers import news_of
from tests.worlds import PIPELINE, World
from wire.frames import GpuProcess

EVE = ("n", "GPU-n-1", "eve")


def ledger(charge: bool = False) -> World:
    """One node, and eve on its second GPU for an hour."""
    world = World(replace(PIPELINE, sharing=Sharing(off_queue="strays" if charge else "")))
    world.join("n")
    world.tell(StrangerSeen(*EVE, 99, "python x.py"))
    world.tell(StrangerSeen(*EVE, 100, "python y.py"))  # still the same stint
    world.now += 3_600.0
    return world


def test_a_stint_has_an_owner_a_beginning_and_an_end() -> None:
    world = ledger()
    world.tell(StrangerGone(*EVE))
    world.tell(StrangerGone(*EVE))
    assert [each for each in world.events if isinstance(each, StrangerCame | StrangerLeft)] == [
        StrangerCame(1_000.0, *EVE, 99, "python x.py"),
        StrangerLeft(4_600.0, *EVE, 1_000.0),
    ]
    [stint] = world.state.offqueue.within(0.0, 9_000.0)
    assert (stint.user, stint.since, stint.until, stint.gpu_hours(0.0, 9_000.0)) == (
        "eve",
        1_000.0,
        4_600.0,
        1.0,
    )
    assert stint.gpu_hours(2_800.0, 9_000.0) == 0.5
    assert list(world.state.offqueue.within(4_600.0, 9_000.0)) == []


@pytest.mark.parametrize("charge", [True, False])
def test_it_costs_its_owner_if_a_project_is_named_for_that(charge: bool) -> None:
    world = ledger(charge)
    shares = world.state.shares
    if not charge:
        assert ("strays", "eve") not in shares.accounts
        return
    usage = shares.accounts["strays", "eve"].usage
    assert usage.rate == 1.0
    assert usage.total(world.now) == pytest.approx(1.0, rel=0.02)  # it fades a little
    world.tell(StrangerGone(*EVE))
    assert usage.rate == 0.0
    assert shares.accounts["strays",].usage.rate == 0.0


def test_a_node_that_goes_away_ends_what_nobody_sees_any_more() -> None:
    world = ledger(charge=True)
    world.tell(inputs.LinkWentDown("n", "cut"))
    assert world.state.offqueue.open == {}
    [stint] = world.state.offqueue.over.values()
    assert stint.until == world.now
    assert world.state.shares.accounts["strays", "eve"].usage.rate == 0.0
    world.tell(StrangerSeen(*EVE, 99, "python x.py"))
    assert world.state.offqueue.open == {}  # a late word from a line that is cut


def test_it_survives_a_restart() -> None:
    world = ledger(charge=True)
    world.tell(StrangerSeen("n", "GPU-n-2", "bob", 7, "jupyter"))
    world.tell(StrangerGone(*EVE))
    again = world.restarted().state.offqueue
    assert (again.open, again.over, again.next) == (
        world.state.offqueue.open,
        world.state.offqueue.over,
        world.state.offqueue.next,
    )


def test_rows_follow_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offqueue, "KEPT", 2)
    world = ledger()
    rows: dict[tuple[str, str], NoteRow] = {}
    for number in range(5):
        world.tell(StrangerGone(*EVE))
        world.now += 60.0
        world.tell(StrangerSeen(*EVE, number, "python"))
        rows.update(((row.kind, row.name), row) for row in noted(world.state, world.events))
    state = State(PIPELINE.order)
    recall(state, [row for row in rows.values() if row.body is not None])
    assert [*state.offqueue.over] == [*world.state.offqueue.over] == [4, 5]
    assert state.offqueue.open == world.state.offqueue.open


def test_news_are_what_differs_from_what_is_known() -> None:
    world = ledger()
    known = world.state.offqueue

    def process(uuid: str, user: str, job: int | None = None) -> GpuProcess:
        return GpuProcess(uuid, 5, user, "python", 100, job)

    same = [process("GPU-n-1", "eve"), process("GPU-n-1", "eve"), process("GPU-n-0", "ada", 3)]
    assert list(news_of("n", same, known)) == []
    assert list(news_of("n", [process("GPU-n-1", "bob"), process("GPU-n-2", "?")], known)) == [
        StrangerGone(*EVE),
        StrangerSeen("n", "GPU-n-1", "bob", 5, "python"),
    ]
