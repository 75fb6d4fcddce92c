"""Use of GPUs outside the queue is recorded, and charged if the site wants it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.fairshare import offqueue_usage
from controller.core.fairshare.offqueue_usage import offqueue_inputs
from controller.core.fairshare.usage import FairshareConfig
from controller.core.model.events.tenants import OffQueueProcessEnded, OffQueueProcessStarted
from controller.core.model.inputs import agent_inputs
from controller.core.model.inputs.agent_inputs import OffQueueProcessGone, OffQueueProcessSeen
from controller.core.model.rows import NoteRow
from controller.core.state.note_rows import changed_notes, load_notes
from controller.core.state.state import State
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.reports import GpuProcess

EVE = ("n", "GPU-n-1", "eve")


def ledger(charge: bool = False) -> EngineHarness:
    """One node. A process of eve uses its second GPU for an hour."""
    harness = EngineHarness(replace(PIPELINE, sharing=FairshareConfig(off_queue="strays" if charge else "")))
    harness.join("n")
    harness.tell(OffQueueProcessSeen(*EVE, 99, "python x.py"))
    harness.tell(OffQueueProcessSeen(*EVE, 100, "python y.py"))  # still the same stint
    harness.now += 3_600.0
    return harness


def test_a_use_outside_the_queue_has_a_user_a_start_and_an_end() -> None:
    harness = ledger()
    harness.tell(OffQueueProcessGone(*EVE))
    harness.tell(OffQueueProcessGone(*EVE))
    assert [
        each for each in harness.events if isinstance(each, OffQueueProcessStarted | OffQueueProcessEnded)
    ] == [
        OffQueueProcessStarted(1_000.0, *EVE, 99, "python x.py"),
        OffQueueProcessEnded(4_600.0, *EVE, 1_000.0),
    ]
    [stint] = harness.state.offqueue.within(0.0, 9_000.0)
    assert (stint.user, stint.since, stint.until, stint.gpu_hours(0.0, 9_000.0)) == (
        "eve",
        1_000.0,
        4_600.0,
        1.0,
    )
    assert stint.gpu_hours(2_800.0, 9_000.0) == 0.5
    assert list(harness.state.offqueue.within(4_600.0, 9_000.0)) == []


@pytest.mark.parametrize("charge", [True, False])
def test_use_outside_the_queue_is_charged_if_a_project_is_configured(charge: bool) -> None:
    harness = ledger(charge)
    shares = harness.state.shares
    if not charge:
        assert ("strays", "eve") not in shares.accounts
        return
    usage = shares.accounts["strays", "eve"].usage
    assert usage.rate == 1.0
    assert usage.total(harness.now) == pytest.approx(1.0, rel=0.02)  # it fades a little
    harness.tell(OffQueueProcessGone(*EVE))
    assert usage.rate == 0.0
    assert shares.accounts["strays",].usage.rate == 0.0


@pytest.mark.parametrize(
    ("billing", "model", "rate"),
    [
        ({"gpu": 1.0, "gpu.H100": 3.0}, "NVIDIA H100 80GB HBM3", 3.0),
        ({"gpu.H100": 3.0, "gpu.H100 80GB": 4.0}, "NVIDIA H100 80GB HBM3", 4.0),
        ({"gpu": 1.0, "gpu.H100": 3.0}, "NVIDIA A100-SXM4-40GB", 1.0),
        ({"gpu.H100": 3.0}, "NVIDIA A100-SXM4-40GB", 0.0),
    ],
)
def test_use_outside_the_queue_has_the_price_of_a_job(
    billing: dict[str, float], model: str, rate: float
) -> None:
    sharing = FairshareConfig(off_queue="strays", billing=billing)
    harness = EngineHarness(replace(PIPELINE, sharing=sharing))
    harness.join("n", model=model)
    harness.tell(OffQueueProcessSeen(*EVE, 99, "python x.py"))
    assert harness.state.offqueue.open[EVE].rate == rate
    job = harness.submit(spec(1))
    harness.tick()
    assert harness.job(job).charge == rate


def test_off_queue_use_ends_when_its_node_goes_away() -> None:
    harness = ledger(charge=True)
    harness.tell(agent_inputs.LinkWentDown("n", "cut"))
    assert harness.state.offqueue.open == {}
    [stint] = harness.state.offqueue.over.values()
    assert stint.until == harness.now
    assert harness.state.shares.accounts["strays", "eve"].usage.rate == 0.0
    harness.tell(OffQueueProcessSeen(*EVE, 99, "python x.py"))
    assert harness.state.offqueue.open == {}  # a late report of a cut link


def test_off_queue_use_survives_a_restart() -> None:
    harness = ledger(charge=True)
    harness.tell(OffQueueProcessSeen("n", "GPU-n-2", "bob", 7, "jupyter"))
    harness.tell(OffQueueProcessGone(*EVE))
    again = harness.restarted().state.offqueue
    assert (again.open, again.over, again.next) == (
        harness.state.offqueue.open,
        harness.state.offqueue.over,
        harness.state.offqueue.next,
    )


def test_rows_are_written_and_the_oldest_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offqueue_usage, "MAX_KEPT", 2)
    harness = ledger()
    rows: dict[tuple[str, str], NoteRow] = {}
    for number in range(5):
        harness.tell(OffQueueProcessGone(*EVE))
        harness.now += 60.0
        harness.tell(OffQueueProcessSeen(*EVE, number, "python"))
        rows.update(((row.kind, row.name), row) for row in changed_notes(harness.state, harness.events))
    state = State(PIPELINE.order)
    load_notes(state, [row for row in rows.values() if row.body is not None])
    assert [*state.offqueue.over] == [*harness.state.offqueue.over] == [4, 5]
    assert state.offqueue.open == harness.state.offqueue.open


def test_inputs_for_uses_that_began_or_ended() -> None:
    harness = ledger()
    known = harness.state.offqueue

    def process(uuid: str, user: str, job: int | None = None) -> GpuProcess:
        return GpuProcess(uuid, 5, user, "python", 100, job)

    same = [process("GPU-n-1", "eve"), process("GPU-n-1", "eve"), process("GPU-n-0", "ada", 3)]
    assert list(offqueue_inputs("n", same, known)) == []
    assert list(offqueue_inputs("n", [process("GPU-n-1", "bob"), process("GPU-n-2", "?")], known)) == [
        OffQueueProcessGone(*EVE),
        OffQueueProcessSeen("n", "GPU-n-1", "bob", 5, "python"),
    ]
