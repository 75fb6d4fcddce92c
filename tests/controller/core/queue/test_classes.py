"""Which jobs form one class: the short way to it, that most jobs take, leads where the long one does."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from controller.core.model.request import PerNodeRequest, request_of
from wire.job.affinity import Toleration, parse_preference, parse_term
from wire.job.gangs import Gang
from wire.job.gpu_requirements import GpuWish, Topology
from wire.job.job_affinity import JobTerm
from wire.job.spec import JobSpec

PLAIN = JobSpec(command=("true",), gpus=4, nodes=2)
TELLS: dict[str, Any] = {
    "cpu_milli": 2_000,
    "memory_mib": 2_048,
    "gpus": 8,
    "nodes": 4,
    "gpu_models": ("H100",),
    "gpu": GpuWish(numa="require"),
    "topology": Topology("rack"),
    "datasets": ("c4",),
    "licences": {"ansys": 1},
    "labels": {"app": "x"},
    "selector": {"disk": "nvme"},
    "company": (JobTerm("app", "x"),),
    "affinity": (parse_term("disk exists"),),
    "preferences": (parse_preference("disk exists"),),
    "tolerations": (Toleration("broken"),),
    "gang": Gang(min_nodes=1),
    "image": "python:3.12",
    "scratch_mib": 1_024,
}
"""All that a class goes by."""


@pytest.mark.parametrize("name", TELLS)
def test_what_makes_another_class(name: str) -> None:
    assert request_of(replace(PLAIN, **{name: TELLS[name]})) != request_of(PLAIN)


def test_every_wish_of_a_part_can_be_told() -> None:
    """Who adds a field to Part adds what tells it to TELLS, and to _WISHES in requests.py."""
    told = [request_of(replace(PLAIN, **{name: value})).part for name, value in TELLS.items()]
    shares = request_of(replace(PLAIN, gpus=0.25, nodes=1)).part
    usual = request_of(PLAIN).part
    for each in fields(PerNodeRequest):
        assert any(getattr(part, each.name) != getattr(usual, each.name) for part in (*told, shares)), (
            each.name
        )


def test_equal_specs_have_the_same_class() -> None:
    assert request_of(replace(PLAIN, name="another")) is request_of(PLAIN)
