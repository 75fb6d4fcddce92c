"""The same random steps under quotas and reservations that are set and removed: none is ever violated."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.nominations import MovePlanned
from controller.core.model.events.queued import JobQueued
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.quota.queue_rules import EXEMPT_FAIR_SHARE, EXEMPT_QUOTA, QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.core.quota.usage_counters import CPU, GPU, GPU_TIME, QUEUED, RUNNING
from controller.plugins.backfill.kinds import Conservative
from controller.plugins.quotas.local import (
    BorrowTable,
    LocalQuotas,
    ProjectQuotaTable,
    QuotaAmounts,
    QuotaTable,
)
from tests.engine_harness import PIPELINE, spec
from tests.examples import examples
from tests.property.machines.test_engine_machine import EngineMachine
from wire.cluster.quota import UNLIMITED, Limits, Quota
from wire.cluster.reservation import ReservationSpec

NAMES = ("r", "s")
RULES = QuotaConfig(
    {
        "short": QueueRule(priority=3, max_running=2, max_time_limit_s=90.0),
        "default": QueueRule(),
        "spare": QueueRule(exempt=frozenset({EXEMPT_QUOTA, EXEMPT_FAIR_SHARE}), max_running_per_user=1),
    },
    LocalQuotas(
        users={
            "*": QuotaTable(running=6, queued=40, soft=QuotaAmounts(gpus=4)),
            "ada": QuotaTable(gpu_hours=10),
        },
        projects={
            "p": ProjectQuotaTable(gpus=9, borrow=BorrowTable(gpus=8)),
            "q": ProjectQuotaTable(gpus=10, cpus=40),
        },
    ),
    window_s=3_600.0,
    licences={"m": 3, "n": 1},
)
PLACES = {"cpu_milli": CPU, "gpus": GPU, "running": RUNNING, "queued": QUEUED, "gpu_hours": GPU_TIME}


class LimitsMachine(EngineMachine):
    pipeline = replace(PIPELINE, rules=RULES)

    def __init__(self) -> None:
        super().__init__()
        self.judged = self.counted = self.shared = 0
        self.moving: set[int] = set()

    @rule(
        gpus=st.sampled_from([0, 1, 8]),
        nodes=st.sampled_from([None, 2]),
        limit=st.sampled_from([None, 30, 90, 300]),
        user=st.sampled_from(["ada", "bo"]),
        project=st.sampled_from(["p", "q"]),
        queue=st.sampled_from(["default", "short", "spare", "shrot"]),
        licences=st.dictionaries(st.sampled_from("mn"), st.sampled_from([1, 1, 2]), max_size=2),
    )
    def submit_with_limit(
        self,
        gpus: int,
        nodes: int | None,
        limit: float | None,
        user: str,
        project: str,
        queue: str,
        licences: dict[str, int],
    ) -> None:
        asked = spec(
            gpus * (nodes or 1),
            nodes=nodes,
            time_limit_s=limit,
            project=project,
            grace_s=5.0,
            queue=queue,
            licences=licences,
        )
        self.harness.tell(job_inputs.Submit(asked, user))

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
            self.harness.now + after,
            length,
            by_name,
            count,
            users=users,
            projects=projects,
            every_s=every,
        )
        self.harness.tell(policy_inputs.Reserve(asked, "root", anyway))

    @rule(
        key=st.sampled_from([("user", "ada"), ("user", "*"), ("project", "p"), ("queue", "short")]),
        limits=st.dictionaries(
            st.sampled_from(sorted(PLACES)), st.sampled_from([0, 1, 2, 5, -1]), max_size=2
        ),
        soft=st.booleans(),
    )
    def set_quota(self, key: tuple[str, str], limits: dict[str, int], soft: bool) -> None:
        said = Limits(
            **{name: value * 1000 if name == "cpu_milli" else value for name, value in limits.items()}
        )
        self.harness.tell(policy_inputs.SetQuota(*key, Quota(soft=said) if soft else Quota(said), "root"))

    @rule(share=st.sampled_from(["p", "p/ada"]), hard=st.sampled_from([-1.0, 0.0, 4.0, 20.0]))
    def limit_share(self, share: str, hard: float) -> None:
        self.harness.tell(policy_inputs.SetShare(share, None, "root", hard=hard))

    @invariant()
    def shares_and_licences_are_kept(self) -> None:
        """No job starts while its share is at the hard limit, and jobs hold no more licences than exist."""
        state, placed = self.harness.state, self.harness.events[self.shared :]
        self.shared = len(self.harness.events)
        assert all(used <= RULES.licences[name] for name, used in state.licences.used.items())
        last = {
            state.tenant(self.harness.job(each.job)): each for each in placed if isinstance(each, JobPlaced)
        }
        for path, event in last.items():
            own = self.harness.job(event.job).charge * state.shares.sharing.held_hours
            limited = [path[:depth] for depth in range(1, len(path) + 1)]
            for name, limit in state.shares.hard.items():
                for each in limited:
                    others = sum(p[: len(each)] == each for p in last)
                    if state.shares.name(each) == name and others == 1 and len(placed) < 50:
                        assert state.shares.used(each, event.at) - own < limit

    @rule(key=st.sampled_from([("user", "ada"), ("user", "*"), ("project", "p")]))
    def unset_quota(self, key: tuple[str, str]) -> None:
        self.harness.tell(policy_inputs.UnsetQuota(*key, "root"))

    @rule(name=st.sampled_from(NAMES))
    def cancel_reservation(self, name: str) -> None:
        self.harness.tell(policy_inputs.CancelReservation(name, "root"))

    @invariant()
    def hard_quotas_are_kept(self) -> None:
        """A start brings no tenant above its quota, and a submit brings no tenant above its limit on waiting
        jobs.
        """
        state = self.harness.state
        for event in self.harness.events[self.counted :]:
            if isinstance(event, MovePlanned):
                self.moving.add(event.job)
                continue
            if isinstance(event, JobPlaced) and event.job in self.moving:
                self.moving.discard(event.job)  # A moved job goes on, whatever its quota is now.
                continue
            if isinstance(event, JobPlaced):
                job, wrong = self.harness.job(event.job), QUEUED
            elif isinstance(event, JobQueued):
                job, wrong = self.harness.job(event.job), None
            else:
                continue
            for account in state.accounts.tenants_of(job.user, job.spec):
                quota = state.quotas.quota(account.key)
                for name, place in PLACES.items():
                    limit, lent = getattr(quota.hard, name), getattr(quota.borrow, name) or 0
                    if limit in (None, UNLIMITED) or (wrong is None) != (place == QUEUED):
                        continue
                    if (
                        isinstance(event, JobPlaced)
                        and not state.accounts.held(job, event.allocations)[place]
                    ):
                        continue  # A job may start that needs nothing of what is used up.
                    unit = {GPU: 1000, GPU_TIME: 3_600_000}.get(place, 1)
                    used = account.amount(place, self.harness.now, RULES.window_s)
                    assert used <= (limit + lent) * unit, (account.key, name, used, limit, lent)
        self.counted = len(self.harness.events)

    @invariant()
    def reservations_are_kept(self) -> None:
        """A job on a reserved node is admitted, or ends before the reservation begins."""
        for event in self.harness.events[self.judged :]:
            if isinstance(event, JobPlaced):
                job = self.harness.job(event.job)
                until = event.at + job.span
                for each in self.harness.state.reservations:
                    if {one.node for one in event.allocations} & {*each.nodes}:
                        admitted = job.user in each.spec.users or job.spec.project in each.spec.projects
                        assert admitted or not _is_on_between(each.spec, event.at, until)
        self.judged = len(self.harness.events)

    def finish(self) -> None:
        """When all reservations and limits are removed, all jobs run."""
        for key in [
            *self.harness.state.quotas.edits
        ]:  # jobs started under a higher limit must be able to end
            self.harness.tell(
                policy_inputs.SetQuota(*key, Quota(Limits(**dict.fromkeys(PLACES, -1))), "root")
            )
        for name in NAMES:
            self.harness.tell(policy_inputs.CancelReservation(name, "root"))
        for share in [*self.harness.state.shares.hard]:
            self.harness.tell(policy_inputs.SetShare(share, None, "root", hard=-1.0))
        super().finish()


def _is_on_between(spec: ReservationSpec, at: float, until: float) -> bool:
    """Return whether an occurrence of a repeated reservation overlaps the time span."""
    begin = spec.starts_at
    while begin < until:
        if begin + spec.duration_s > at:
            return True
        if spec.every_s is None:
            return False
        begin += spec.every_s
    return False


class ConservativeMachine(LimitsMachine):
    pipeline = replace(PIPELINE, rules=RULES, backfill=Conservative())


LimitsMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=60)
ConservativeMachine.TestCase.settings = settings(max_examples=examples(45), stateful_step_count=60)
TestLimits = LimitsMachine.TestCase
TestConservativeLimits = ConservativeMachine.TestCase
