"""A wish that no configured filter looks at is refused: nobody is placed as if it had not been said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.framework.interfaces import Filter
from controller.core.model import inputs
from controller.core.model.request import PerNodeRequest
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.codec import encode
from wire.job.affinity import parse_preference, parse_term, parse_toleration
from wire.job.job_affinity import parse_job_term
from wire.names import Reason


def without(*names: str, more: tuple[Filter, ...] = ()) -> EngineHarness:
    """One node, and the usual filters but these."""
    filters = tuple(each for each in PIPELINE.filters if each.name not in names)
    harness = EngineHarness(replace(PIPELINE, filters=(*filters, *more)))
    harness.join("a", labels={"disk": "nvme"})
    return harness


# What a job says, and the filter without which that is nothing.
WISHES: list[tuple[str, dict[str, Any]]] = [
    ("selector", {"selector": {"disk": "nvme"}}),
    ("affinity", {"affinity": (parse_term("disk exists"),)}),
    ("company", {"company": (parse_job_term("app=x on node", None),)}),
    ("company", {"labels": {"app": "x"}, "company": (parse_job_term("app=x on node", 1),)}),
]


@pytest.mark.parametrize(("name", "asked"), WISHES)
def test_a_wish_without_its_filter_is_refused(name: str, asked: dict[str, Any]) -> None:
    there = without(*{"selector", "affinity", "taints", "company"} - {name})
    there.submit(spec(1, **asked))
    assert len(there.tick()) == 1
    refused = without(name).refuse(inputs.Submit(spec(1, **asked), "ada"))
    assert (refused.code, refused.where) == ("never_fits", name)
    assert f"the filter {name!r} is not configured" in refused.message
    assert "[scheduler]" in refused.hint


@pytest.mark.parametrize(("name", "asked"), WISHES)
def test_nor_can_a_job_come_to_it_by_an_edit(name: str, asked: dict[str, Any]) -> None:
    there = without(name)
    job = there.submit(spec(1))
    told = encode(spec(1, **asked))
    refused = there.refuse(inputs.Edit(job, "ada", {each: told[each] for each in asked}))
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
def test_what_is_only_preferred_is_taken(asked: dict[str, Any]) -> None:
    there = without("selector", "affinity", "taints", "company")
    there.submit(spec(1, **asked))
    assert len(there.tick()) == 1


@dataclass(frozen=True, slots=True)
class Disks:
    """Somebody else's filter, that looks at selectors in its own way."""

    name: ClassVar[str] = "disks"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        return nodes.open[rows]

    def concerns(self, part: PerNodeRequest) -> bool:
        return bool(part.selector)

    def explain(self, part: PerNodeRequest) -> str:
        return "no such disk"


def test_whichever_filter_concerns_itself_with_it_will_do() -> None:
    there = without("selector", more=(Disks(),))
    there.submit(spec(1, selector={"disk": "nvme"}))
    assert len(there.tick()) == 1


def test_who_waits_when_the_filter_is_taken_away_goes_on_waiting_and_says_why() -> None:
    there = without()
    job = there.submit(spec(1, selector={"disk": "nvme"}))
    other = there.restarted(without("selector").engine.pipeline)
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
def test_a_taint_that_would_keep_nobody_away_is_refused(taint: str, value: str | None, refused: bool) -> None:
    there = without("taints")
    given = inputs.MarkNode("a", "root", {}, {taint: value})
    if refused:
        found = there.refuse(given)
        assert (found.where, found.code) == (f"taints.{taint}", "invalid")
    else:
        assert isinstance(there.tell(given).reply, inputs.Accepted)
    assert isinstance(without().tell(given).reply, inputs.Accepted)
