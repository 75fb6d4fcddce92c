"""The same random steps under reservations that come and go: none is ever violated."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from controller.core import inputs
from controller.core.events import JobPlaced
from controller.core.plugin import Backfill
from tests.property.test_engine_machine import EngineMachine
from tests.worlds import PIPELINE, spec
from wire.reservation import ReservationSpec

NAMES = ("r", "s")


class LimitsMachine(EngineMachine):
    def __init__(self) -> None:
        super().__init__()
        self.judged = 0

    @rule(
        gpus=st.sampled_from([0, 1, 8]),
        nodes=st.sampled_from([None, 2]),
        limit=st.sampled_from([None, 30, 90, 300]),
        user=st.sampled_from(["ada", "bo"]),
        project=st.sampled_from(["p", "q"]),
    )
    def submit_with_limit(
        self, gpus: int, nodes: int | None, limit: float | None, user: str, project: str
    ) -> None:
        asked = spec(gpus * (nodes or 1), nodes=nodes, time_limit_s=limit, project=project, grace_s=5.0)
        self.world.tell(inputs.Submit(asked, user))

    @rule(
        name=st.sampled_from(NAMES),
        after=st.floats(-20, 200),
        length=st.sampled_from([30.0, 100.0]),
        every=st.sampled_from([None, 150.0]),
        nodes=st.sampled_from([("a",), ("a", "b"), ("c",), 1, 2]),
        users=st.sampled_from([(), ("ada",)]),
        projects=st.sampled_from([(), ("p",)]),
        anyway=st.booleans(),
    )
    def reserve(
        self,
        name: str,
        after: float,
        length: float,
        every: float | None,
        nodes: tuple[str, ...] | int,
        users: tuple[str, ...],
        projects: tuple[str, ...],
        anyway: bool,
    ) -> None:
        by_name, count = ((), nodes) if isinstance(nodes, int) else (nodes, None)
        asked = ReservationSpec(
            name,
            self.world.now + after,
            length,
            by_name,
            count,
            users=users,
            projects=projects,
            every_s=every,
        )
        self.world.tell(inputs.Reserve(asked, "root", anyway))

    @rule(name=st.sampled_from(NAMES))
    def cancel_reservation(self, name: str) -> None:
        self.world.tell(inputs.CancelReservation(name, "root"))

    @invariant()
    def reservations_are_kept(self) -> None:
        """Whoever starts on a kept node is admitted, or over before the time comes."""
        for event in self.world.events[self.judged :]:
            if isinstance(event, JobPlaced):
                job = self.world.job(event.job)
                until = event.at + job.span
                for each in self.world.state.reservations:
                    if {one.node for one in event.allocations} & {*each.nodes}:
                        admitted = job.user in each.spec.users or job.spec.project in each.spec.projects
                        assert admitted or not _is_on_between(each.spec, event.at, until)
        self.judged = len(self.world.events)

    def finish(self) -> None:
        """Without reservations everything runs."""
        for name in NAMES:
            self.world.tell(inputs.CancelReservation(name, "root"))
        super().finish()


def _is_on_between(spec: ReservationSpec, at: float, until: float) -> bool:
    """Turn by turn, since its first."""
    begin = spec.starts_at
    while begin < until:
        if begin + spec.duration_s > at:
            return True
        if spec.every_s is None:
            return False
        begin += spec.every_s
    return False


class ConservativeMachine(LimitsMachine):
    pipeline = replace(PIPELINE, backfill=Backfill.CONSERVATIVE)


LimitsMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
ConservativeMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=60, deadline=None)
TestLimits = LimitsMachine.TestCase
TestConservativeLimits = ConservativeMachine.TestCase
