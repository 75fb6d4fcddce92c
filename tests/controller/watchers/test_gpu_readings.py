"""Which GPU readings count as trouble, by the configured rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.cluster.gpus.gpu_health import (
    DEFAULT_HEALTH_POLICY,
    GpuHealthPolicy,
    HealthAction,
    ReadingLimits,
)
from controller.core.model.inputs.agent_inputs import GpuTroubled
from controller.watchers.gpu_readings import GpuHealthWatch
from wire.agent.reports import GpuProcess, GpuSample
from wire.names import TroubleKind

WELL = GpuSample("a", ecc_corrected=5, ecc_uncorrected=1, links=18, links_up=18, memory_used_mib=600)
OTHER = replace(WELL, uuid="b")


class Cluster:
    """One node with two GPUs, and its watch."""

    def __init__(self, health_policy: GpuHealthPolicy = DEFAULT_HEALTH_POLICY, *samples: GpuSample) -> None:
        self.held: set[str] = set()
        self.now = 1_000.0
        self.watch = GpuHealthWatch(health_policy, lambda _: self.held, lambda _: None)
        self.watch.processes("n", (), self.now)
        self.watch.read("n", samples or (WELL, OTHER), self.now)

    def after(self, seconds: float, **changed: object) -> list[tuple[str, TroubleKind]]:
        """The troubles found in a reading of GPU a after these seconds."""
        self.now += seconds
        if changed:
            self.watch.read("n", (replace(WELL, **changed),), self.now)  # type: ignore[arg-type]
        found = list(self.watch.found(self.now))
        assert all(isinstance(each, GpuTroubled) for each in found)
        return [(each.uuid, each.kind) for each in found if isinstance(each, GpuTroubled)]

    def lasting(self) -> str:
        return self.watch.lasting("n", "a", self.now)


def test_errors_from_before_the_start_are_not_reported() -> None:
    assert Cluster().after(10) == []


def test_each_increase_of_uncorrected_errors_is_reported_once() -> None:
    cluster = Cluster()
    assert cluster.after(10, ecc_uncorrected=4) == [("a", TroubleKind.ECC_UNCORRECTED)]
    assert cluster.after(10, ecc_uncorrected=4) == []
    assert cluster.after(10, ecc_uncorrected=0) == []  # the driver was loaded again
    assert cluster.after(10, ecc_uncorrected=1) == [("a", TroubleKind.ECC_UNCORRECTED)]
    assert cluster.lasting() == ""


def test_corrected_errors_count_when_many_come_within_an_hour() -> None:
    cluster = Cluster(GpuHealthPolicy(limits=ReadingLimits(corrected_per_hour=100)))
    assert cluster.after(10, ecc_corrected=104) == []
    assert cluster.after(10, ecc_corrected=105) == [("a", TroubleKind.ECC_CORRECTED)]
    slow = Cluster(GpuHealthPolicy(limits=ReadingLimits(corrected_per_hour=100)))
    for hour in range(1, 20):
        assert slow.after(3_600, ecc_corrected=5 + 60 * hour) == []


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"remap_pending": True}, TroubleKind.ROW_REMAP),
        ({"links_up": 17}, TroubleKind.NVLINK),
    ],
)
def test_condition_is_reported_once_and_fails_every_check_while_it_lasts(
    changed: dict[str, object], kind: TroubleKind
) -> None:
    cluster = Cluster()
    assert cluster.after(10, **changed) == [("a", kind)]
    assert cluster.after(10) == []
    assert cluster.lasting() != ""
    assert cluster.after(10, **{name: getattr(WELL, name) for name in changed}) == []
    assert cluster.lasting() == ""
    assert cluster.after(10, **changed) == [("a", kind)]


def test_links_down_since_the_start_are_found_by_comparison_with_another_gpu() -> None:
    cluster = Cluster(GpuHealthPolicy(), replace(WELL, links_up=0), OTHER)
    assert cluster.after(10) == [("a", TroubleKind.NVLINK)]
    bridgeless = Cluster(GpuHealthPolicy(), replace(WELL, links_up=0), replace(OTHER, links_up=0))
    assert bridgeless.after(10) == []


def test_slowdown_is_reported_when_it_lasts() -> None:
    cluster = Cluster()
    hot = ("power cap", "too hot (hardware)")
    assert cluster.after(10, throttle=hot) == []
    assert cluster.after(50) == []
    assert cluster.after(10) == [("a", TroubleKind.SLOWDOWN)]
    assert "too hot (hardware)" in cluster.lasting()
    assert cluster.after(1, throttle=("power cap",)) == []
    assert cluster.lasting() == ""


def test_memory_without_a_process_counts_on_a_free_gpu() -> None:
    cluster = Cluster()
    cluster.watch.processes("n", (GpuProcess("a", 7, "eve", "python"),), cluster.now)
    assert cluster.after(10, memory_used_mib=9_000) == []
    assert cluster.after(300) == []
    cluster.watch.processes("n", (), cluster.now)
    cluster.held = {"a"}
    assert cluster.after(300) == []
    cluster.held = set()
    cluster.watch.processes("n", (), cluster.now)
    assert cluster.after(59) == []
    assert cluster.after(2) == [("a", TroubleKind.MEMORY)]


def test_configuration_can_ignore_a_reading() -> None:
    cluster = Cluster(GpuHealthPolicy(rules={TroubleKind.NVLINK: HealthAction.IGNORE}))
    assert cluster.after(10, links_up=0) == []
    assert cluster.lasting() == ""
