"""The tables [queues.NAME]: what each key does to jobs, from scheduler.toml to the decision of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from controller.config import ConfigRefused, load_text
from controller.core.model import inputs
from controller.core.model.inputs import Accepted, Refusal, Requester
from controller.registry import build_pipeline
from tests.engine_harness import EngineHarness, spec


def under(text: str, nodes: int = 1) -> EngineHarness:
    """Nodes with eight GPUs each under this scheduler.toml."""
    harness = EngineHarness(build_pipeline(load_text(text, "scheduler.toml")))
    for number in range(nodes):
        harness.join(f"n{number + 1}")
    return harness


def refused(harness: EngineHarness, user: str = "ada", **asked: Any) -> Refusal:
    return harness.refuse(inputs.Submit(spec(**asked), user, asker=Requester(user)))


def accepted(harness: EngineHarness, user: str = "ada", **asked: Any) -> None:
    reply = harness.tell(inputs.Submit(spec(**asked), user, asker=Requester(user))).reply
    assert isinstance(reply, Accepted), reply


def problems(text: str) -> list[str]:
    """The mistakes that stop the controller, without their positions."""
    with pytest.raises(ConfigRefused) as caught:
        build_pipeline(load_text(text, "scheduler.toml"))
    return [str(each).removeprefix(f"{each.origin}: ") for each in caught.value.problems]


@pytest.mark.parametrize(
    "table", ["[queues.low]\nmax_priority", "[queues.low]\n[access.limits.queues.low]\npriority"]
)
def test_a_queue_caps_the_priority_that_users_may_request(table: str) -> None:
    harness = under(f'{table} = "LOW"')
    assert "at most LOW" in refused(harness, queue="low", priority=26).message
    accepted(harness, queue="low", priority=25)
    accepted(harness, priority=50)


def test_the_refusal_names_the_key_of_the_queue() -> None:
    harness = under("[queues.low]\nmax_priority = 10")
    assert refused(harness, queue="low", priority=11).message.endswith("by [queues.low] max_priority")


def test_a_priority_that_is_set_twice_and_differently_is_refused() -> None:
    text = '[queues.low]\nmax_priority = "LOW"\n[access.limits.queues.low]\npriority = '
    assert problems(text + '"HIGH"') == [
        "queues.low.max_priority: [access.limits.queues.low] sets another priority, HIGH "
        "(scheduler.toml:4). Leave out the key in [access.limits], which is the older place of this limit."
    ]
    build_pipeline(load_text(text + '"LOW"', "scheduler.toml"))


def test_the_default_project_of_a_queue_comes_before_that_of_the_user() -> None:
    harness = under(
        """
        [queues.batch]
        default_project = "sweeps"
        [queues.default]
        [projects.sweeps]
        [projects.vision]
        default_for = ["ada"]
        """
    )
    found = [
        harness.job(harness.submit(spec(**asked), user)).spec.project
        for asked, user in (
            ({"queue": "batch"}, "ada"),
            ({"queue": "batch", "project": "vision"}, "ada"),
            ({}, "ada"),
            ({}, "bob"),
        )
    ]
    assert found == ["sweeps", "vision", "vision", "default"]


def test_a_default_project_that_may_not_use_the_queue_is_refused() -> None:
    text = '[queues.batch]\nprojects = ["vision"]\ndefault_project = "speech"'
    assert problems(text) == [
        "queues.batch.default_project: project 'speech' may not use this queue. "
        "Add the project to `projects`."
    ]


def test_a_queue_refuses_jobs_with_too_few_or_too_many_gpus() -> None:
    harness = under("[queues.wide]\nmin_gpus_per_job = 2\nmax_gpus_per_job = 4")
    assert "at least 2 GPUs" in refused(harness, queue="wide", gpus=1).message
    assert "at most 4 GPUs" in refused(harness, queue="wide", gpus=8).message
    harness.submit(spec(4, queue="wide"))
    harness.submit(spec(8))
    assert "min_gpus_per_job is more than max_gpus_per_job" in "".join(
        problems("[queues.wide]\nmin_gpus_per_job = 5\nmax_gpus_per_job = 4")
    )
