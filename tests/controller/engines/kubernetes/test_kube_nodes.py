"""The nodes of Kubernetes as nodes of Corral, and quantities."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from controller.engines.kubernetes.kube_nodes import NodeSettings, foreign_nodes, kube_node
from controller.engines.kubernetes.pod_request import Toleration
from controller.engines.kubernetes.quantities import PodResources, quantity, requests_of

GPU = "nvidia.com/gpu"


def node(name: str = "a", *, ready: str = "True", gpus: int = 4, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81559"},
        },
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "16Gi", GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletStopped"}],
        },
    }


def why(found: dict[str, Any], *tolerations: str) -> str:
    return kube_node(found, GPU, [Toleration.parsed(each) for each in tolerations]).why


def test_others_take_the_highest_gpus_that_no_job_holds() -> None:
    [found] = foreign_nodes(
        [kube_node(node(), GPU, ())],
        {"a": PodResources(1_000, 1_024, 1)},
        {"a": {"kube-a-3"}},
        NodeSettings("kube"),
    )
    assert (found.facts.cpu_milli, found.facts.memory_mib) == (2_920, 15 * 1_024)
    assert [each.uuid for each in found.facts.gpus] == ["kube-a-0", "kube-a-1", "kube-a-3"]
    assert {(each.model, each.memory_mib) for each in found.facts.gpus} == {("H100", 81_559)}


def test_gpus_of_running_jobs_stay_even_if_others_use_more_than_there_is() -> None:
    [found] = foreign_nodes(
        [kube_node(node(), GPU, ())],
        {"a": PodResources(9_000, 1, 9)},
        {"a": {"kube-a-3"}},
        NodeSettings("kube"),
    )
    assert found.facts.cpu_milli == 0
    assert [each.uuid for each in found.facts.gpus] == ["kube-a-3"]


def test_the_scheduler_of_kubernetes_gets_all_usable_nodes_as_one() -> None:
    nodes = [kube_node(each, GPU, ()) for each in (node("a"), node("b"), node("c", unschedulable=True))]
    [pool] = foreign_nodes(nodes, {}, {}, NodeSettings("kube", place="scheduler"))
    assert (pool.name, pool.available, pool.facts.cpu_milli, len(pool.facts.gpus)) == ("pods", True, 7_840, 8)
    [empty] = foreign_nodes(nodes[2:], {}, {}, NodeSettings("kube", place="scheduler"))
    assert (empty.available, empty.why) == (False, "c: it is cordoned in Kubernetes")


def test_reasons_for_which_a_node_takes_no_jobs() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    assert why(node()) == ""
    assert why(node(ready="Unknown")) == "it is not ready in Kubernetes: KubeletStopped"
    assert why(node(unschedulable=True)) == "it is cordoned in Kubernetes"
    assert why(node(taints=[taint])) == "it has the taint gpu=yes:NoSchedule"
    assert why(node(taints=[taint]), "gpu=no") != ""
    assert why(node(taints=[taint]), "gpu:NoExecute") != ""
    assert why(node(taints=[taint]), "gpu=yes:NoSchedule") == ""
    assert why(node(taints=[{"key": "x", "effect": "PreferNoSchedule"}])) == ""


def test_requests_of_a_pod_are_those_of_its_containers_or_its_largest_init_container() -> None:
    def container(cpu: str, memory: str, kind: str = "requests") -> dict[str, Any]:
        return {"resources": {kind: {"cpu": cpu, "memory": memory, GPU: 1}}}

    pod = {
        "spec": {
            "containers": [container("100m", "1Mi"), container("0.25", "1500Ki", "limits")],
            "initContainers": [container("200m", "1Gi")],
            "overhead": {"cpu": "1m"},
        }
    }
    assert requests_of(pod, GPU) == PodResources(351, 1_024, 2)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", Decimal("0.5")),
        ("2", Decimal(2)),
        ("1.5Gi", Decimal(3 << 29)),
        ("128974848", Decimal(128974848)),
        ("129e6", Decimal(129_000_000)),
        ("129M", Decimal(129_000_000)),
        ("1E", Decimal(10) ** 18),
        ("100n", Decimal("1e-7")),
    ],
)
def test_quantities(text: str, number: Decimal) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1gi", "0x10"])
def test_texts_that_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)
