"""Quotas of GPU models and quotas in percent hold under random steps, on a cluster with two GPU models."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from controller.core.cluster.node_table import names_model
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.quota.budget_rules import Budget, BudgetAction, BudgetRules
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative
from controller.plugins.quotas.local import BorrowTable, LocalQuotas, ProjectQuotaTable, QuotaTable
from tests.engine_harness import PIPELINE, EngineHarness, spec
from tests.examples import examples
from tests.property.machines.test_engine_machine import EngineMachine
from wire.cluster.quota import UNLIMITED, GpuLimit, Limits, Quota

RULES = QuotaConfig(
    {},
    LocalQuotas(
        users={"*": QuotaTable(gpus="60%", gpus_per_model={"H100": 9})},
        projects={
            "p": ProjectQuotaTable(
                gpus_per_model={"A100": "50%"}, borrow=BorrowTable(gpus_per_model={"A100": 2})
            ),
            "q": ProjectQuotaTable(gpus_per_model={"A100": 3}),
        },
    ),
    budgets=BudgetRules(
        {"p": Budget(gpu_hours=0.1), "q": Budget(money=0.1, carry_over=0.5, then=BudgetAction.LOW)}, price=1.0
    ),
)


class TwoModels(EngineHarness):
    """A harness whose node b has A100, and all other nodes H100."""

    def join(self, name: str, *arguments: object, **host: object) -> None:
        super().join(name, *arguments, **{"model": "A100" if name == "b" else "H100", **host})  # type: ignore[arg-type]


class ModelQuotaMachine(EngineMachine):
    pipeline = replace(PIPELINE, rules=RULES)
    harness_type = TwoModels

    def __init__(self) -> None:
        super().__init__()
        self.judged = 0

    @rule(
        gpus=st.sampled_from([1, 2, 8]),
        nodes=st.sampled_from([None, 2]),
        models=st.sampled_from([(), ("H100",), ("A100",)]),
        user=st.sampled_from(["ada", "bo"]),
        project=st.sampled_from(["p", "q", "r"]),
        limit=st.sampled_from([None, 30, 300]),
    )
    def submit_for_model(
        self,
        gpus: int,
        nodes: int | None,
        models: tuple[str, ...],
        user: str,
        project: str,
        limit: float | None,
    ) -> None:
        asked = spec(
            gpus * (nodes or 1),
            nodes=nodes,
            gpu_models=models,
            project=project,
            time_limit_s=limit,
            grace_s=5.0,
        )
        self.harness.tell(job_inputs.Submit(asked, user))

    @rule(
        user=st.sampled_from(["ada", "*"]),
        limits=st.dictionaries(
            st.sampled_from(["H100", "a100"]),
            st.sampled_from([GpuLimit(2), GpuLimit(percent=50), GpuLimit(UNLIMITED)]),
        ),
    )
    def set_model_quota(self, user: str, limits: dict[str, GpuLimit]) -> None:
        self.harness.tell(policy_inputs.SetQuota("user", user, Quota(Limits(gpus_per_model=limits)), "root"))

    @rule(user=st.sampled_from(["ada", "*"]))
    def unset_model_quota(self, user: str) -> None:
        self.harness.tell(policy_inputs.UnsetQuota("user", user, "root"))

    @invariant()
    def quotas_are_kept(self) -> None:
        """No start brings a tenant above its limit of GPUs, or of GPUs of one model."""
        state = self.harness.state
        for event in self.harness.events[self.judged :]:
            if not isinstance(event, JobPlaced):
                continue
            job = self.harness.job(event.job)
            for account in state.accounts.tenants_of(job.user, job.spec):
                quota = state.quotas.quota(account.key)
                if quota.hard.gpus is not None:
                    assert account.used[2] <= quota.hard.gpus * 1000 + 1
                for model, limit in quota.hard.gpus_per_model.items():
                    started = sum(
                        hold.milli
                        for each in event.allocations
                        for hold in each.gpus
                        if names_model(model, state.models_of_node(each.node).get(hold.uuid, ""))
                    )
                    lent = quota.borrow.gpus_per_model.get(model, GpuLimit(0)).gpus or 0
                    if started and limit.gpus not in (None, UNLIMITED):
                        place = 6 + [each.casefold() for each in state.quotas.models].index(model.casefold())
                        assert account.used[place] <= ((limit.gpus or 0) + lent) * 1000 + 1, (
                            account.key,
                            model,
                        )
        self.judged = len(self.harness.events)

    def finish(self) -> None:
        """Without limits, all jobs run."""
        none = GpuLimit(UNLIMITED)
        every = Limits(gpus=UNLIMITED, gpus_per_model={"H100": none, "A100": none})
        for user in ("ada", "bo"):
            self.harness.tell(policy_inputs.SetQuota("user", user, Quota(every), "root"))
        for project in ("p", "q"):
            self.harness.tell(policy_inputs.SetQuota("project", project, Quota(every), "root"))
        super().finish()


class ConservativeModelQuotaMachine(ModelQuotaMachine):
    pipeline = replace(ModelQuotaMachine.pipeline, backfill=Conservative())


ModelQuotaMachine.TestCase.settings = settings(max_examples=examples(24), stateful_step_count=60)
ConservativeModelQuotaMachine.TestCase.settings = settings(max_examples=examples(24), stateful_step_count=60)
TestModelQuotas = ModelQuotaMachine.TestCase
TestConservativeModelQuotas = ConservativeModelQuotaMachine.TestCase
