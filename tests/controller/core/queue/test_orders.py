"""The start order under every queue order that depends on age and usage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from controller.core.fairshare.usage import FairshareConfig
from controller.core.framework.interfaces import Backfill
from controller.core.framework.order_chain import chain_orders
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.kinds import body_of, event_of, kind_of
from controller.core.model.inputs import node_inputs, policy_inputs
from controller.core.queue.order import Order
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.core.state.apply import apply
from controller.core.state.order_view import priority_points
from controller.core.state.state import State
from controller.plugins.backfill.kinds import Conservative, Easy, NoBackfill
from controller.plugins.orders.aging import AgingOrder
from controller.plugins.orders.fair import FairShareOrder
from controller.plugins.orders.fixed import DeadlineOrder, FifoOrder, PriorityOrder, ShortestFirstOrder
from controller.plugins.orders.multifactor import MultifactorOrder
from tests.engine_harness import PIPELINE, EngineHarness, spec

HOUR = 3600.0


@dataclass
class Row:
    """One waiting job: its user, its submit time (hours before now), and its fields."""

    user: str
    hours: float = 0.0
    priority: int = 50
    gpus: int = 8
    project: str = "default"
    limit_h: float | None = None
    due_h: float | None = None
    """Hours from now until its deadline."""


def harness_of(
    order: Order, sharing: FairshareConfig | None = None, backfill: Backfill = Easy()
) -> EngineHarness:
    """One node of eight GPUs."""
    harness = EngineHarness(
        replace(PIPELINE, order=order, backfill=backfill, sharing=sharing or FairshareConfig())
    )
    harness.join("gpu01")
    return harness


def starts(harness: EngineHarness, rows: list[Row]) -> list[str]:
    """The users in the order in which their jobs start, each job an hour long."""
    now = harness.now + 1000 * HOUR
    names = {}
    harness.tell(node_inputs.Drain("gpu01", "root", ""))
    for row in sorted(rows, key=lambda row: -row.hours):
        harness.now = now - row.hours * HOUR
        limit = None if row.limit_h is None else row.limit_h * HOUR
        due = None if row.due_h is None else now + row.due_h * HOUR
        asked = spec(
            row.gpus, priority=row.priority, project=row.project, time_limit_s=limit, deadline_at=due
        )
        names[harness.submit(asked, row.user)] = row.user
    harness.now = now
    harness.tell(node_inputs.Resume("gpu01", "root"))
    seen = []
    while len(seen) < len(rows):
        placed = [start.job for start in harness.tick()]
        assert placed, "nothing starts any more"
        seen += [names[job] for job in placed]
        for job in placed:
            harness.start(job)
        harness.now += HOUR
        for job in placed:
            harness.exit(job)
    return seen


STORIES: dict[str, tuple[Order, list[Row], str]] = {
    "fair: users take turns, whoever submitted first": (
        FairShareOrder(),
        [Row("ada", 9), Row("ada", 8), Row("ada", 7), Row("bo", 2), Row("bo", 1)],
        "ada bo ada bo ada",
    ),
    "fair: projects take turns, and within each its users": (
        FairShareOrder(),
        [Row("ada", 9, project="vision"), Row("ada", 8, project="vision"), Row("chen", 7, project="vision"),
         Row("bo", 1, project="speech")],
        "ada bo chen ada",
    ),
    "aging: an hour of waiting is a point of priority": (
        AgingOrder(per_hour=1.0, ceiling=70.0),
        [Row("old", 21, priority=40), Row("new", 0, priority=60)],
        "old new",
    ),
    "aging: not long enough yet": (
        AgingOrder(per_hour=1.0, ceiling=70.0),
        [Row("old", 19, priority=40), Row("new", 0, priority=60)],
        "new old",
    ),
    "aging: nobody rises above the ceiling": (
        AgingOrder(per_hour=1.0, ceiling=70.0),
        [Row("old", 900, priority=40), Row("new", 0, priority=71)],
        "new old",
    ),
    "aging: above the ceiling priority alone counts": (
        AgingOrder(per_hour=1.0, ceiling=70.0),
        [Row("old", 900, priority=80), Row("new", 0, priority=90)],
        "new old",
    ),
    "multifactor: priority counts most": (
        MultifactorOrder(priority=1000, age=100, fair_share=0, size=0),
        [Row("old", 100, priority=50), Row("new", 0, priority=75)],
        "new old",
    ),
    "multifactor: unless age does": (
        MultifactorOrder(priority=100, age=1000, fair_share=0, size=0),
        [Row("old", 100, priority=50), Row("new", 0, priority=75)],
        "old new",
    ),
    "multifactor: a user who has just had a turn stands back": (
        MultifactorOrder(priority=0, age=0, fair_share=1, size=0),
        [Row("ada", 2), Row("ada", 1), Row("bo", 0)],
        "ada bo ada",
    ),
    "multifactor: large before small": (
        MultifactorOrder(priority=0, age=0, fair_share=0, size=1),
        [Row("small", 5, gpus=5), Row("large", 0, gpus=8)],
        "large small",
    ),
    "deadline: the earliest first, none last": (
        DeadlineOrder(),
        [Row("never", 9), Row("late", 5, limit_h=1, due_h=90), Row("soon", 0, limit_h=1, due_h=9)],
        "soon late never",
    ),
    "multifactor: a deadline counts more the nearer it comes": (
        MultifactorOrder(priority=0, age=1, fair_share=0, size=0, deadline=10),
        [Row("old", 168, limit_h=2), Row("far", 0, limit_h=2, due_h=900),
         Row("near", 0, limit_h=2, due_h=12)],
        "near old far",
    ),
    "priority, then fair": (
        chain_orders(PriorityOrder(), FairShareOrder()),
        [Row("ada", 9), Row("ada", 8), Row("bo", 1), Row("chen", 0, priority=75)],
        "chen ada bo ada",
    ),
    "priority, then the shortest": (
        chain_orders(PriorityOrder(), ShortestFirstOrder()),
        [Row("long", 9, limit_h=5), Row("short", 1, limit_h=2), Row("urgent", 0, priority=75, limit_h=9)],
        "urgent short long",
    ),
    "fair, then the shortest": (
        chain_orders(FairShareOrder(), ShortestFirstOrder()),
        [Row("ada", 9, limit_h=5), Row("ada", 8, limit_h=2), Row("bo", 1, limit_h=3)],
        "ada bo ada",
    ),
}  # fmt: skip


@pytest.mark.parametrize("backfill", [NoBackfill(), Easy(), Conservative()])
@pytest.mark.parametrize("story", STORIES)
def test_start_order_of_each_queue_order(story: str, backfill: Backfill) -> None:
    order, rows, expected = STORIES[story]
    assert " ".join(starts(harness_of(order, backfill=backfill), rows)) == expected


def test_share_weights_decide_how_often_a_tenant_starts() -> None:
    sharing = FairshareConfig(weights={"big": 3}, held_hours=0.0, half_life_s=1e9)
    rows = [Row("x", 50 - turn, project="big") for turn in range(12)]
    rows += [Row("y", 50 - turn, project="small") for turn in range(12)]
    first = starts(harness_of(FairShareOrder(), sharing), rows)[:12]
    assert 8 <= first.count("x") <= 9


def test_a_tenant_above_its_soft_limit_comes_last() -> None:
    sharing = FairshareConfig(soft={"default/ada": 10.0})
    rows = [Row("ada", 9), Row("ada", 8), Row("ada", 7)]
    rows += [Row("bo", 3 - turn / 2) for turn in range(6)]
    assert " ".join(starts(harness_of(FairShareOrder(), sharing), rows)) == "ada bo ada bo bo bo bo bo ada"


def test_one_cycle_starts_jobs_of_all_tenants() -> None:
    harness = harness_of(FairShareOrder())
    jobs = {harness.submit(spec(1), user): user for user in ("ada",) * 8 + ("bo",) * 8}
    placed = [jobs[start.job] for start in harness.tick()]
    assert sorted(placed) == ["ada"] * 4 + ["bo"] * 4


def test_a_share_set_live_counts_from_the_next_decision() -> None:
    harness = harness_of(FairShareOrder(), FairshareConfig(held_hours=0.0))
    for user, project in (("ada", "vision"), ("bo", "speech")):
        job = harness.submit(spec(8, project=project), user)
        harness.tick()
        harness.start(job)
        harness.now += HOUR
        harness.exit(job)
    ada, bo = (harness.submit(spec(8, project=project), user) for user, project in
               (("ada", "vision"), ("bo", "speech")))  # fmt: skip
    assert harness.state.queue.ahead(ada, None) == 0
    harness.tell(policy_inputs.SetShare("speech", 4.0, "root"))
    placed = [start.job for start in harness.tick()]
    assert placed == [bo]


@pytest.mark.parametrize("order", [MultifactorOrder(), chain_orders(MultifactorOrder(), FifoOrder())])
def test_receipt_decides_the_order_and_can_be_recomputed_from_the_journal(order: Order) -> None:
    harness = harness_of(order)
    rows = [Row("ada", 30), Row("bo", 20, priority=75), Row("ada", 10, gpus=4), Row("chen", 1, priority=51)]
    starts(harness, rows)
    folded = State(order, sharing=harness.pipeline.sharing)
    receipts = 0
    for event in harness.events:
        if isinstance(event, JobPlaced):
            waiting = {
                entry[1]: priority_points(folded, folded.jobs[entry[1]], event.at)
                for lane in folded.queue
                for entry in lane
            }
            totals = {job: sum(each.points for each in receipt) for job, receipt in waiting.items()}
            assert totals[event.job] == max(totals.values())
            receipts += len(waiting)
        apply(folded, event_of(kind_of(event), body_of(event)))
    assert receipts >= len(rows)


def test_explain_shows_the_receipt_and_the_resulting_position() -> None:
    harness = harness_of(MultifactorOrder())
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    ada = harness.submit(spec(8, priority=75), "ada")
    bo = harness.submit(spec(8, priority=100), "bo")
    harness.tick()
    whys = {job: harness.engine.explain(harness.job(job), harness.now) for job in (ada, bo)}
    assert {job: why.position for job, why in whys.items()} == {bo: 1, ada: 2}
    assert [each.name for each in whys[ada].receipt] == ["priority", "age", "fair_share", "size", "deadline"]
    for job, why in whys.items():
        assert sum(each.points for each in why.receipt) == sum(
            each.points for each in priority_points(harness.state, harness.job(job), harness.now)
        )


QUEUES = {"express": QueueRule(priority=10), "bulk": QueueRule(priority=-10)}
WEIGHED = MultifactorOrder(age=0, fair_share=0, size=0, queue=500)


@pytest.mark.parametrize(
    ("order", "factors"),
    [
        (WEIGHED, {"express": 1.0, "default": 0.5, "bulk": 0.0}),
        (chain_orders(WEIGHED, FairShareOrder()), {"express": 1.0, "default": 0.5, "bulk": 0.0}),
    ],
)
def test_queue_priority_is_one_factor_of_the_receipt(order: Order, factors: dict[str, float]) -> None:
    """From bulk to default are 250 points, as many as from priority 50 to 75. Priority 90 is worth more than
    that.
    """
    harness = EngineHarness(replace(PIPELINE, order=order, rules=QuotaConfig(QUEUES)))
    jobs = {queue: harness.submit(spec(8, queue=queue), "bo") for queue in factors}
    urgent = harness.submit(spec(8, queue="bulk", priority=90), "bo")
    first, second, third = (jobs[queue] for queue in factors)
    whys = {queue: harness.engine.explain(harness.job(job), harness.now) for queue, job in jobs.items()}
    for queue, why in whys.items():
        assert [(each.factor, each.points) for each in why.receipt if each.name == "queue"] == [
            (factors[queue], factors[queue] * 500)
        ]
    harness.join("gpu01")
    for job in (first, urgent, second, third):
        assert [start.job for start in harness.tick()] == [job]
        harness.start(job)
        harness.exit(job)
    unweighed = EngineHarness(replace(PIPELINE, order=replace(WEIGHED, queue=0.0), rules=QuotaConfig(QUEUES)))
    assert unweighed.state.queue_tier(harness.job(urgent)) == (10.0,), (
        "above or below all that is in other queues"
    )
