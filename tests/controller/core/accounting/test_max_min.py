"""Max-min division between tenants, and down the share tree."""

from __future__ import annotations

import math

from controller.core.accounting.max_min import Demand, entitled_parts, max_min
from controller.core.fairshare.share_tree import SharePath


def test_small_demands_are_met_and_the_rest_is_divided_by_weight() -> None:
    assert max_min(12, {"a": 2, "b": 20, "c": 20}, {"b": 3}) == {"a": 2, "b": 7.5, "c": 2.5}
    assert max_min(12, {"a": 2, "b": 3}, {}) == {"a": 2, "b": 3}


def test_a_negative_capacity_gives_nothing() -> None:
    assert max_min(-1, {"a": 2, "b": 3}, {}) == {"a": 0, "b": 0}


def _parts(
    capacity: float,
    demands: dict[SharePath, Demand],
    weights: dict[SharePath, float] | None = None,
    most: dict[SharePath, float] | None = None,
) -> dict[SharePath, float]:
    return entitled_parts(
        capacity,
        demands,
        lambda path: (weights or {}).get(path, 1.0),
        lambda models: 4.0 if models else capacity,
        lambda path: (most or {}).get(path, math.inf),
    )


def test_the_part_of_a_project_is_divided_between_its_users() -> None:
    demands: dict[SharePath, Demand] = {("a", "ann"): {(): 8}, ("a", "bob"): {(): 8}, ("b", "eve"): {(): 2}}
    assert _parts(8, demands) == {("a", "ann"): 3, ("a", "bob"): 3, ("b", "eve"): 2}


def test_an_organisation_divides_its_part_between_its_projects() -> None:
    demands: dict[SharePath, Demand] = {
        ("org", "a", "ann"): {(): 8},
        ("org", "b", "bob"): {(): 8},
        ("c", "eve"): {(): 8},
    }
    assert _parts(8, demands, {("org", "a"): 3.0}) == {
        ("org", "a", "ann"): 3,
        ("org", "b", "bob"): 1,
        ("c", "eve"): 4,
    }


def test_jobs_that_require_a_model_demand_at_most_its_gpus() -> None:
    # The two users of project a demand 8 GPUs of a model of which the cluster has 4.
    demands: dict[SharePath, Demand] = {
        ("a", "ann"): {("H100",): 4},
        ("a", "bob"): {("H100",): 4},
        ("b", "eve"): {(): 8},
    }
    assert _parts(12, demands) == {("a", "ann"): 2, ("a", "bob"): 2, ("b", "eve"): 8}


def test_a_quota_bounds_the_demand_of_a_project() -> None:
    demands: dict[SharePath, Demand] = {("a", "ann"): {(): 8}, ("b", "eve"): {(): 8}}
    assert _parts(8, demands, most={("a",): 1.0}) == {("a", "ann"): 1, ("b", "eve"): 7}
