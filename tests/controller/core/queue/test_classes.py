"""Which jobs form one class; the fast path that most jobs take gives the same class."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from controller.core.model.request import PerNodeRequest, request_of
from wire.job.gangs import Gang
from wire.job.placement.affinity import Toleration, parse_preference, parse_term
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.placement.job_affinity import JobTerm
from wire.job.spec import JobSpec

PLAIN = JobSpec(command=("true",), gpus=4, nodes=2)
OTHER_VALUES: dict[str, Any] = {
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
"""A value that differs from PLAIN for each field that a class depends on."""


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_fields_that_separate_request_classes(name: str) -> None:
    assert request_of(replace(PLAIN, **{name: OTHER_VALUES[name]})) != request_of(PLAIN)


def test_every_field_of_a_per_node_request_separates_classes() -> None:
    """A new field of PerNodeRequest needs an entry in OTHER_VALUES, and in _WISHES of requests.py."""
    parts = [request_of(replace(PLAIN, **{name: value})).part for name, value in OTHER_VALUES.items()]
    shares = request_of(replace(PLAIN, gpus=0.25, nodes=1)).part
    labelled = request_of(replace(PLAIN, labels={"app": "x"}), "ada").part
    usual = request_of(PLAIN).part
    for each in (field for field in fields(PerNodeRequest) if field.init):
        assert any(
            getattr(part, each.name) != getattr(usual, each.name) for part in (*parts, shares, labelled)
        ), each.name


def test_equal_specs_have_the_same_class() -> None:
    assert request_of(replace(PLAIN, name="another")) is request_of(PLAIN)


def test_the_user_separates_classes_only_of_jobs_with_labels_or_job_affinity() -> None:
    """Because only these depend on whose jobs run on a node."""
    assert request_of(PLAIN, "ada") is request_of(PLAIN, "eve")
    for name in ("labels", "company"):
        social = replace(PLAIN, **{name: OTHER_VALUES[name]})
        assert request_of(social, "ada") != request_of(social, "eve")
