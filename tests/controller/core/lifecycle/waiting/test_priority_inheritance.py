"""A job inherits the highest priority of the jobs that wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.lifecycle.waiting.priority_inheritance import inherited_text
from controller.core.model.events.queued import PriorityInherited
from controller.core.model.inputs import job_inputs
from controller.core.model.wait_state import WaitRules
from controller.core.queue.order import Order
from controller.plugins.orders.aging import AgingOrder
from controller.plugins.orders.fixed import PriorityOrder
from controller.plugins.orders.multifactor import MultifactorOrder
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.start_conditions import Dependency, Until


def after(*jobs: int | str, until: Until = Until.OK) -> tuple[Dependency, ...]:
    return tuple(Dependency(until, str(job)) for job in jobs)


def harness_of(order: Order | None = None) -> EngineHarness:
    """A cluster without nodes, so that no job can start."""
    return EngineHarness(replace(PIPELINE, order=order or PriorityOrder()))


def priorities(harness: EngineHarness, *jobs: int) -> list[int]:
    return [harness.job(job).priority for job in jobs]


def order_of(harness: EngineHarness) -> list[int]:
    """The waiting jobs in queue order."""
    whys = {job: harness.why(job).position for lane in harness.state.queue for _, job in lane}
    return sorted(whys, key=lambda job: whys[job] or 0)


@pytest.mark.parametrize(
    "order", [PriorityOrder(), AgingOrder(per_hour=0), MultifactorOrder(age=0, fair_share=0, size=0)]
)
def test_a_job_inherits_the_priority_of_a_job_that_waits_for_it(order: Order) -> None:
    harness = harness_of(order)
    plain, low = harness.submit(spec(8)), harness.submit(spec(8, priority=25))
    assert order_of(harness) == [plain, low]
    heir = harness.submit(spec(8, priority=90, after=after(low)))
    assert order_of(harness) == [low, plain]
    why = harness.why(low)
    assert f"its priority is inherited 90 from job {heir}" in why.sentence
    assert [each.note for each in why.receipt if each.name == "priority"] in (
        [],
        [f"inherited 90 from job {heir}"],
    )
    harness.join("m")
    assert [start.job for start in harness.tick()] == [low]


def test_priority_is_inherited_along_a_chain() -> None:
    harness = harness_of()
    first = harness.submit(spec(1, priority=10))
    second = harness.submit(spec(1, priority=30, after=after(first)))
    third = harness.submit(spec(1, priority=20, after=after(second)))
    assert priorities(harness, first, second, third) == [30, 30, 20]
    harness.tell(job_inputs.Edit(third, "ada", {"priority": 80}))
    assert priorities(harness, first, second, third) == [80, 80, 80]
    assert harness.restarted().job(first).priority == 80
    harness.tell(job_inputs.Edit(third, "ada", {"priority": 40}))
    assert priorities(harness, first, second, third) == [40, 40, 40]
    harness.tell(job_inputs.Cancel(third, "ada"))
    assert priorities(harness, first, second) == [30, 30]
    assert harness.why(first).sentence.endswith(f"inherited 30 from job {second}")
    harness.tell(job_inputs.Edit(second, "ada", {"after": None}))
    assert priorities(harness, first, second) == [10, 30]


def test_the_highest_lent_priority_counts() -> None:
    harness = harness_of()
    low = harness.submit(spec(1, priority=10))
    heirs = [harness.submit(spec(1, priority=each, after=after(low))) for each in (60, 90, 90, 70)]
    for heir, left in zip([heirs[1], heirs[2], heirs[0], heirs[3]], (90, 70, 70, 10), strict=True):
        harness.tell(job_inputs.Cancel(heir, "ada"))
        assert priorities(harness, low) == [left]
    inherited = [event.priority for event in harness.events if isinstance(event, PriorityInherited)]
    assert inherited == [60, 90, 70, 0], "a job of the same priority changes nothing"


def test_every_element_of_an_array_inherits_also_from_arrays() -> None:
    harness = harness_of()
    array = harness.submit(spec(1, array="0-2", priority=10))
    single = harness.submit(spec(1, priority=10))
    harness.submit(spec(1, array="0-1", priority=60, after=(*after(array), *after(single))))
    harness.submit(spec(1, priority=70, after=after(f"{array}_1")))
    assert priorities(harness, array, array + 1, array + 2, single) == [60, 70, 60, 60]


@pytest.mark.parametrize("until", [each for each in Until if each is not Until.DATA])
def test_inheritance_ends_when_the_dependency_is_met(until: Until) -> None:
    harness = harness_of()
    other = harness.submit(spec(1, priority=10))
    job = harness.submit(spec(1, priority=10))
    harness.submit(spec(1, priority=90, after=after(other, job, until=until), after_count=1))
    assert priorities(harness, other, job) == [90, 90]
    harness.tell(job_inputs.Cancel(job, "ada"))
    happened = until in (Until.NOT_OK, Until.ENDED)
    assert priorities(harness, other) == [10 if happened else 90], "one of the two was enough"


def test_a_held_job_passes_on_no_priority() -> None:
    harness = harness_of()
    low = harness.submit(spec(1, priority=10))
    heir = harness.submit(spec(1, priority=90, after=after(low), hold=True))
    assert priorities(harness, low) == [10]
    harness.tell(job_inputs.Release(heir, "ada"))
    assert priorities(harness, low) == [90]
    harness.tell(job_inputs.Hold(heir, "ada"))
    assert priorities(harness, low) == [10]


def test_a_job_promoted_for_waiting_rises_from_its_own_priority() -> None:
    rules = WaitRules(promote_after_s=60.0, promote_by=30, promote_most=75)
    harness = EngineHarness(replace(PIPELINE, waiting=rules))
    low = harness.submit(spec(1, priority=10))
    heir = harness.submit(spec(1, priority=50, after=after(low)))
    harness.now = 1_060.0
    harness.tick()
    assert (harness.job(low).own_priority, harness.job(low).priority) == (40, 50)
    harness.now = 1_120.0
    harness.tick()
    assert priorities(harness, low, heir) == [70, 50]
    assert inherited_text(harness.state, harness.job(low)) == "", "its own is higher"


def test_a_waiting_job_preempts_by_its_requested_priority() -> None:
    """Otherwise a user could preempt other jobs by submitting a CRITICAL job that depends on a low one."""
    harness = harness_of()
    low = harness.submit(spec(1, priority=10))
    before = PriorityStrategy().reach(harness.job(low))
    harness.submit(spec(1, priority=100, after=after(low)))
    assert PriorityStrategy().reach(harness.job(low)) == before


@pytest.mark.parametrize("ends", ["cancel", "edit", "hold"])
def test_a_running_job_keeps_its_inherited_priority_while_a_job_lends_it(ends: str) -> None:
    """It started before the others for the job that waits; a job in between must not stop it again."""
    guards = PreemptionGuards(min_runtime_s=0.0)
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(),), guards=guards))
    low = harness.submit(spec(8, priority=10))
    heir = harness.submit(spec(8, priority=90, after=after(low)))
    harness.join("m")
    harness.tick()
    harness.start(low)
    middle = harness.submit(spec(8, priority=75))
    harness.tick()
    assert (harness.job(low).stopping, harness.job(middle).claim) == (None, ())
    end = {
        "cancel": job_inputs.Cancel(heir, "ada"),
        "hold": job_inputs.Hold(heir, "ada"),
        "edit": job_inputs.Edit(heir, "ada", {"after": []}),
    }
    harness.tell(end[ends])
    assert harness.engine.next_at <= harness.now
    harness.tick()
    assert harness.job(low).stopping is not None
