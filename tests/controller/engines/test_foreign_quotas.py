"""The quotas of projects that an execution engine sets."""

from __future__ import annotations

from controller.core.model.decision.decision import DONE, Reply
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.policy_inputs import SetQuota, UnsetQuota
from controller.engines.contract import EngineUnavailable, ForeignQuota
from controller.engines.foreign_quotas import ForeignQuotas
from controller.engines.kubernetes.resource_quotas import quota_of
from controller.plugins.quotas.kubernetes import KubernetesQuotas
from wire.cluster.quota import Limits, Quota

GPU = "nvidia.com/gpu"


class Kept:
    """The quota that operators have set, as the engine of Corral keeps it, and the answers of Kubernetes."""

    def __init__(self) -> None:
        self.quota, self.there, self.time = Quota(), ForeignQuota(Limits(), Limits()), 1_000.0
        self.away = ""
        self.inputs: list[Input] = []
        self.quotas = ForeignQuotas(
            KubernetesQuotas(engine="kube", namespaces={"vision": "team"}),
            self.read,
            lambda project: self.quota,
            self.ask,
            lambda: True,
            lambda: self.time,
        )

    async def read(self, namespace: str) -> ForeignQuota:
        assert namespace == "team"
        if self.away:
            raise EngineUnavailable(self.away)
        return self.there

    async def ask(self, given: Input) -> Reply:
        self.inputs.append(given)
        if isinstance(given, SetQuota):
            self.quota = given.quota.over(self.quota)
        elif isinstance(given, UnsetQuota):
            self.quota = Quota()
        return DONE


async def test_limits_are_taken_and_limits_of_operators_stay() -> None:
    kept = Kept()
    kept.quota = Quota(Limits(queued=50), Limits(gpus=2))
    kept.there = ForeignQuota(Limits(gpus=8.0, running=4), Limits(gpus=6.0, running=2))
    assert await kept.quotas.sync("vision") == ""
    assert kept.quota == Quota(Limits(gpus=8.0, running=4, queued=50), Limits(gpus=2))
    assert await kept.quotas.sync("vision") == ""
    assert len(kept.inputs) == 1
    kept.there = ForeignQuota(Limits(running=4), Limits())
    await kept.quotas.sync("vision")
    assert kept.quota == Quota(Limits(running=4, queued=50), Limits(gpus=2))
    kept.quota, kept.there = Quota(Limits(gpus=8.0)), ForeignQuota(Limits(), Limits())
    await kept.quotas.sync("vision")
    assert kept.quota == Quota()


async def test_the_last_limits_stay_while_the_engine_is_away_and_their_age_is_shown() -> None:
    kept = Kept()
    assert kept.quotas.text("vision", Limits()) == "kube:team, not read since the start of the controller"
    kept.there = ForeignQuota(Limits(gpus=8.0), Limits(gpus=6.0))
    await kept.quotas.sync("vision")
    kept.time, kept.away = 1_120.0, "no answer from the API server"
    assert await kept.quotas.sync("vision") == "no answer from the API server"
    assert kept.quota == Quota(Limits(gpus=8.0))
    text = kept.quotas.text("vision", Limits(gpus=4.0))
    assert text == "kube:team, read 2m00s ago; used: gpus 6 there and 4 here; no answer from the API server"
    assert kept.quotas.text("vision", Limits(gpus=6.0)).count("there") == 0
    assert not kept.quotas.has("user", "vision")


def test_the_resource_quota_that_leaves_the_least_counts() -> None:
    def quota(hard: dict[str, str], used: dict[str, str], **spec: object) -> dict[str, object]:
        return {"spec": {"hard": hard, **spec}, "status": {"used": used}}

    found = quota_of(
        [
            quota(
                {f"requests.{GPU}": "8", "requests.cpu": "10"},
                {f"requests.{GPU}": "2", "requests.cpu": "1500m"},
            ),
            quota({f"requests.{GPU}": "4", "limits.cpu": "9"}, {f"requests.{GPU}": "1", "limits.cpu": "1"}),
            quota({"memory": "1Gi", "pods": "7"}, {}),
            quota({"pods": "1"}, {}, scopes=["BestEffort"]),
        ],
        GPU,
    )
    assert found.hard == Limits(cpu_milli=9_000, memory_mib=1_024, gpus=4.0, running=7)
    assert found.used == Limits(cpu_milli=1_000, memory_mib=0, gpus=1.0, running=0)
    assert quota_of([], GPU) == ForeignQuota(Limits(), Limits())
