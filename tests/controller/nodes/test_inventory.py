"""Each GPU belongs to one node as long as this node exists."""

from __future__ import annotations

from controller.nodes.duplicate_gpus import GpuOwners


def test_second_name_of_a_host_is_refused_until_the_first_is_removed() -> None:
    inventory = GpuOwners({"gpu01": ["GPU-1", "GPU-2"]})
    assert inventory.claim("gpu01", ["GPU-1", "GPU-2"]) == ""
    assert "its GPU GPU-2 belongs to node gpu01" in inventory.claim("gpu02", ["GPU-2", "GPU-3"])
    assert inventory.claim("gpu03", ["GPU-3"]) == ""
    inventory.release("gpu01")
    assert "belongs to node gpu03" in inventory.claim("gpu02", ["GPU-2", "GPU-3"])
    assert inventory.claim("gpu02", ["GPU-2"]) == ""


def test_gpu_changes_owner_when_its_old_host_joins_without_it() -> None:
    inventory = GpuOwners({"gpu01": ["GPU-1"], "gpu02": []})
    assert inventory.claim("gpu02", ["GPU-1"])
    assert inventory.claim("gpu01", []) == ""
    assert inventory.claim("gpu02", ["GPU-1"]) == ""


def test_duplicate_gpus_recorded_before_the_check_are_kept() -> None:
    inventory = GpuOwners({"gpu01": ["GPU-1"], "gpu02": ["GPU-1"]})
    assert inventory.claim("gpu01", ["GPU-1"]) == ""
    assert inventory.claim("gpu02", ["GPU-1"]) == ""
