"""The tables of corral rebalance."""

from __future__ import annotations

from dataclasses import replace

from cli.commands.policy.rebalance import move_table, proposal_table
from wire.api.jobs import Held, Moved
from wire.api.nodes import GpuShare
from wire.api.policy.rebalance import MoveView, ProposalView, SpreadView


def held(node: str, *gpus: int) -> Held:
    return Held(node, 1000, 1024, tuple(GpuShare(index, f"GPU-{index}", 1000) for index in gpus))


MOVE = MoveView(3, "3", "train", "ada", (held("gpu01", 0, 1),), (held("gpu02", 4, 5),), 0.25)
PROPOSAL = ProposalView(
    "3f9a2c41",
    "defragment",
    (MOVE,),
    0.25,
    16.0,
    SpreadView(12, 0, 1.0),
    SpreadView(4, 0, 1.0),
    9,
    "9",
    "big",
    (held("gpu01", *range(8)),),
    earlier_s=7200.0,
)
AIMS = [
    (PROPOSAL, "job 9 (big) starts 2h00m sooner on gpu01:0,1,2,3,4,5,6,7"),
    (replace(PROPOSAL, earlier_s=None), "job 9 (big) starts on gpu01:0,1,2,3,4,5,6,7"),
    (replace(PROPOSAL, kind="drain", for_job=None, node="gpu01", earlier_s=None), "gpu01 is empty"),
    (replace(PROPOSAL, kind="drain", for_job=None, node="gpu01", rest=1), "gpu01 is left with 1 job"),
    (
        replace(PROPOSAL, for_job=None, node="gpu01", after=SpreadView(14, 8, 0.4), earlier_s=None),
        "gpu01 is empty",
    ),
    (
        replace(PROPOSAL, for_job=None, node="gpu01", after=SpreadView(13, 0, 1.0)),
        "1 more GPU of gpu01 is wholly free",
    ),
    (replace(PROPOSAL, kind="load", for_job=None, gap=(0.75, 0.25)), "loads differ by 25%, not 75%"),
]


def test_proposal_table_shows_moves_and_their_purpose() -> None:
    for proposal, aim in AIMS:
        [heading, line] = proposal_table().lines([proposal], None)
        assert heading.split()[:2] == ["PROPOSAL", "KIND"]
        assert aim in line
        assert "3 gpu01:0,1 > gpu02:4,5" in line


def test_move_table_shows_results() -> None:
    move = Moved(
        3, "3", "train", "ada", "3f9a2c41", "drain", 1e9, 1, ("gpu01",), ("gpu02",), 0.25, node="gpu01"
    )
    rows = [move, replace(move, done_at=1e9 + 5), replace(move, undone="node gpu02 is down")]
    lines = list(move_table().lines(rows, None))[1:]
    assert ["under way" in lines[0], " moved" in lines[1], "undone" in lines[2]] == [True] * 3
    assert "node gpu02 is down" in lines[2]
