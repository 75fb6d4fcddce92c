"""A constraint without its filter is refused, so that no job is placed as if it had no constraint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.framework.interfaces import Filter
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs, node_inputs
from controller.core.model.request import PerNodeRequest
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.codec import encode
from wire.job.placement.affinity import parse_preference, parse_term, parse_toleration
from wire.job.placement.job_affinity import parse_job_term
from wire.names import Reason


def without(*names: str, more: tuple[Filter, ...] = ()) -> EngineHarness:
    """Return a harness with one node and all default filters except these."""
    filters = tuple(each for each in PIPELINE.filters if each.name not in names)
    harness = EngineHarness(replace(PIPELINE, filters=(*filters, *more)))
    harness.join("a", labels={"disk": "nvme"})
    return harness


# The filter, and a constraint that nothing else checks.
CONSTRAINTS: list[tuple[str, dict[str, Any]]] = [
    ("selector", {"selector": {"disk": "nvme"}}),
    ("affinity", {"affinity": (parse_term("disk exists"),)}),
    ("company", {"company": (parse_job_term("app=x on node", None),)}),
    ("company", {"labels": {"app": "x"}, "company": (parse_job_term("app=x on node", 1),)}),
]


@pytest.mark.parametrize(("name", "asked"), CONSTRAINTS)
def test_constraint_without_its_filter_is_refused(name: str, asked: dict[str, Any]) -> None:
    harness = without(*{"selector", "affinity", "taints", "company"} - {name})
    harness.submit(spec(1, **asked))
    assert len(harness.tick()) == 1
    refused = without(name).refuse(job_inputs.Submit(spec(1, **asked), "ada"))
    assert (refused.code, refused.where) == ("never_fits", name)
    assert f"the filter {name!r} is not configured" in refused.message
    assert "[scheduler]" in refused.hint


@pytest.mark.parametrize(("name", "asked"), CONSTRAINTS)
def test_edit_that_adds_a_constraint_without_its_filter_is_refused(name: str, asked: dict[str, Any]) -> None:
    harness = without(name)
    job = harness.submit(spec(1))
    encoded = encode(spec(1, **asked))
    refused = harness.refuse(job_inputs.Edit(job, "ada", {each: encoded[each] for each in asked}))
    assert refused.where == name


# Needs no filter: scorers look at it, or it asks for nothing on a node.
@pytest.mark.parametrize(
    "asked",
    [
        {"preferences": (parse_preference("disk exists"),)},
        {"tolerations": (parse_toleration("old"),)},
        {"labels": {"app": "x"}},
        {"company": (parse_job_term("app=x on node:prefer", 1),)},
    ],
)
def test_preference_without_its_filter_is_accepted(asked: dict[str, Any]) -> None:
    harness = without("selector", "affinity", "taints", "company")
    harness.submit(spec(1, **asked))
    assert len(harness.tick()) == 1


@dataclass(frozen=True, slots=True)
class Disks:
    """The filter of a site that checks selectors itself."""

    name: ClassVar[str] = "disks"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        return nodes.open[rows]

    def concerns(self, part: PerNodeRequest) -> bool:
        return bool(part.selector)

    def explain(self, part: PerNodeRequest) -> str:
        return "no such disk"


def test_constraint_is_accepted_when_a_filter_of_a_site_covers_it() -> None:
    harness = without("selector", more=(Disks(),))
    harness.submit(spec(1, selector={"disk": "nvme"}))
    assert len(harness.tick()) == 1


def test_waiting_job_keeps_waiting_when_its_filter_is_removed() -> None:
    harness = without()
    job = harness.submit(spec(1, selector={"disk": "nvme"}))
    other = harness.restarted(without("selector").engine.pipeline)
    other.join("a", labels={"disk": "nvme"})
    assert other.tick() == []
    why = other.why(job)
    assert why.reason is Reason.RESOURCES
    assert "the filter 'selector' is not configured" in why.sentence


@pytest.mark.parametrize(
    ("taint", "value", "refused"),
    [
        ("old:NoSchedule", "", True),
        ("old:NoExecute", "x", True),
        ("old:PreferNoSchedule", "", False),
        ("old:NoSchedule", None, False),
    ],
)
def test_taint_without_the_taint_filter_is_refused_if_it_bars_jobs(
    taint: str, value: str | None, refused: bool
) -> None:
    harness = without("taints")
    given = node_inputs.MarkNode("a", "root", {}, {taint: value})
    if refused:
        found = harness.refuse(given)
        assert (found.where, found.code) == (f"taints.{taint}", "invalid")
    else:
        assert isinstance(harness.tell(given).reply, Accepted)
    assert isinstance(without().tell(given).reply, Accepted)
