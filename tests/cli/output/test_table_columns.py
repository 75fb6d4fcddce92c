"""Tables at several widths.

CORRAL_RENEW_GOLDEN=1 rewrites tests/golden/cli: read the difference before you keep it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.demo.summary import Line
from cli.demo.summary import table as summary_table
from cli.output.formats import Table, cell_width, fit
from cli.output.table_columns import (
    event_table,
    gpu_table,
    job_table,
    node_table,
    process_table,
    processes_of,
)
from tests.cli.fake_controller import T0, array, job, node
from wire.agent.reports import GpuProcess
from wire.api.jobs import Held
from wire.api.nodes import GpuShare, GpuView
from wire.api.service.cluster import EventView
from wire.names import GpuHealth, JobState, NodeState, Reason

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "cli"
NOW = T0 + 3_600
RUNNING: dict[str, Any] = {
    "state": JobState.RUNNING,
    "reason": Reason.NONE,
    "attempt": 1,
    "started_at": T0 + 60,
    "held": (Held("gpu01", 4_000, 16_384, (GpuShare(0, "GPU-0", 1_000),)),),
}
JOBS = [
    job(1, name="resnet-baseline", **RUNNING),
    job(
        2,
        name="llama-finetune",
        user="bo",
        gpus=16,
        nodes=2,
        priority=75,
        time_limit_s=90_000,
        detail="needs 2 nodes with 8 GPUs; 1 of 4 can give that now",
    ),
    *array(3, 2, name="sweep", user="chen", gpus=0.25),
    job(
        5,
        name="\x1b[31mred\u202e",
        user="mallory\n",
        state=JobState.FAILED,
        reason=Reason.EXIT_NONZERO,
        started_at=T0,
        ended_at=T0 + 5,
        exit_code=3,
    ),
    job(
        6,
        name="模型训练-日本語のとても長い名前です",
        state=JobState.CANCELLED,
        reason=Reason.USER,
        detail="cancelled by ada",
        ended_at=T0 + 9,
        signal=15,
    ),
    job(
        123_456,
        name="x" * 60,
        user="somebody-with-a-long-name",
        priority=42,
        state=JobState.COMPLETED,
        reason=Reason.NONE,
        started_at=T0,
        ended_at=T0 + 200_000,
        exit_code=0,
    ),
]
GPUS = (
    *(
        GpuView(
            index,
            f"GPU-{index}",
            "H100",
            81_920,
            index // 2,
            GpuHealth.OK,
            1_000 - 250 * index,
            (index,) * index,
            11 * index,
            1_024 * index,
            70 + index,
            40 + index,
        )
        for index in range(3)
    ),
    GpuView(3, "GPU-3", "H100", 81_920, 1, GpuHealth.LOST, 1_000, why="fell off the bus"),
)
FLEET = (
    GpuView(
        0,
        "GPU-0",
        "H100",
        81_920,
        0,
        GpuHealth.OK,
        0,
        (7,),
        96,
        70_000,
        640,
        70,
        node="gpu01",
        pci_bus="00000000:18:00.0",
        clock_mhz=1_755,
        throttle=("power cap",),
        ecc_corrected=2,
        links=(1,),
        links_up=17,
        links_there=18,
        processes=(GpuProcess("GPU-0", 4_242, "ada", "python train.py", 69_000, 7),),
    ),
    GpuView(
        1,
        "GPU-1",
        "H100",
        81_920,
        0,
        GpuHealth.SUSPECT,
        0,
        node="gpu01",
        why="held by pid 99 (mallory)",
        processes=(GpuProcess("GPU-1", 99, "mallory\x1b[2J", "python\x07 mine.py", 40_000),),
    ),
)
NODES = [
    node("gpu01", gpus=GPUS, jobs=(1, 2), labels={"rack": "r1"}),
    node("gpu02", state=NodeState.DRAINED, why="new fan, back on Monday", cpu_free_milli=63_500),
    node(
        "a-node-with-a-long-name.example.org", state=NodeState.DOWN, why="connection lost", memory_mib=1 << 21
    ),
]
EVENTS = [
    EventView(1, T0, "JobQueued", "job 1 queued by ada", job=1),
    EventView(
        20,
        T0 + 90_000,
        "NodeWentAway",
        "node gpu02 went away: \x1b]0;connection\x07 lost after a long while without a word",
        node="gpu02",
    ),
]
SUMMARY = [
    Line("ada", [job(1, state=JobState.COMPLETED, started_at=T0 + 4, ended_at=T0 + 364, gpus=8)]),
    Line(
        "bo",
        [
            job(2, state=JobState.CANCELLED, ended_at=T0 + 1),
            job(3, state=JobState.FAILED, started_at=T0, ended_at=T0 + 36),
        ],
    ),
]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the time zone to UTC, so that shown times are the same on every machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


CASES: dict[str, tuple[Table[Any], Sequence[Any]]] = {
    "queue": (job_table(NOW), JOBS),
    "nodes": (node_table(), NODES),
    "gpus": (gpu_table(), GPUS),
    "all-gpus": (gpu_table(nodes=True), FLEET),
    "processes": (process_table(nodes=True), processes_of(FLEET)),
    "events": (event_table(NOW), EVENTS),
    "summary": (summary_table(), SUMMARY),
}


@pytest.mark.parametrize("case", CASES)
def test_tables_match_the_golden_files(case: str) -> None:
    table, rows = CASES[case]
    parts = []
    for width, wide in [
        (None, False),
        (None, True),
        (120, True),
        (100, False),
        (80, False),
        (60, False),
        (40, False),
    ]:
        title = f"--- {width or 'no terminal'}{', wide' if wide else ''} ---"
        parts += [title, *table.lines(rows, width, wide=wide), ""]
    shown = "\n".join(parts)
    file = GOLDEN / f"{case}.txt"
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        file.write_text(shown)
    assert shown == file.read_text()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(case: str, width: int) -> None:
    table, rows = CASES[case]
    assert max(cell_width(line) for line in table.lines(rows, width, wide=True)) <= width


def test_colours_do_not_change_the_width() -> None:
    plain = list(job_table(NOW).lines(JOBS, 100))
    coloured = list(job_table(NOW).lines(JOBS, 100, colour=True))
    assert coloured[0] == plain[0]
    assert "\x1b[32mRUNNING  \x1b[0m" in coloured[1]
    for before, after in zip(plain, coloured, strict=True):
        for code in ("32", "33", "31", "2", "0"):
            after = after.replace(f"\x1b[{code}m", "")
        assert after == before


@given(st.text(), st.integers(1, 30), st.booleans())
def test_a_cell_has_exactly_its_width(text: str, room: int, right: bool) -> None:
    assert cell_width(fit(text, room, right=right)) == room
