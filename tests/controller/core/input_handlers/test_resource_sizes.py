"""Default CPU and memory of jobs that request none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.framework.profiles import Profile
from controller.core.input_handlers.resource_sizes import PROVISIONAL
from controller.core.model.inputs import job_inputs
from controller.core.model.request import JobDefaults
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.placement.affinity import parse_term
from wire.job.spec import JobSpec

GIB = 1024


def harness_of(
    *nodes: dict[str, Any], defaults: JobDefaults | None = None, **queues: JobDefaults
) -> EngineHarness:
    rules = QuotaConfig({name: QueueRule(defaults=each) for name, each in queues.items()})
    made = EngineHarness(replace(PIPELINE, rules=replace(rules, defaults=defaults or JobDefaults())))
    for number, host in enumerate(nodes, 1):
        made.join(f"gpu{number:02}", **host)
    return made


def size_of(harness: EngineHarness, asked: JobSpec) -> tuple[float, float]:
    """CPUs and GiB per node that the job was given."""
    given = harness.job(harness.submit(asked)).spec
    return given.cpu_milli / 1000, given.memory_mib / GIB


BIG, SMALL = {"cpus": 128, "memory_gib": 2048}, {"gpus": 4, "cpus": 16, "memory_gib": 64, "model": "L4"}


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({"gpus": 1}, (14, 230)),
        ({"gpus": 2}, (28, 460)),
        ({"gpus": 8}, (115, 1843)),
        ({"gpus": 0.5}, (7, 115)),
        ({"gpus": 2, "nodes": 1, "memory_mib": 7 * GIB}, (28, 7)),
        ({"gpus": 2, "cpu_milli": 3_000}, (3, 460)),
        ({}, (1, 16)),
        ({"cpu_milli": 8_000}, (8, 128)),
        ({"best_effort": True}, (0.1, 64 / GIB)),
        ({"gpus": 1, "memory_limit_mib": 4 * GIB}, (14, 4)),
    ],
)
def test_a_job_gets_its_share_of_the_node(asked: dict[str, Any], size: tuple[float, float]) -> None:
    assert size_of(harness_of(BIG), spec(**asked)) == size


def test_gpus_of_several_nodes_count_by_node() -> None:
    harness = harness_of(BIG, BIG)
    assert size_of(harness, spec(gpus=16)) == (115, 1843)
    assert size_of(harness, spec(gpus=4, nodes=2)) == (28, 460)


def test_where_nodes_differ_the_smallest_share_counts_and_the_job_fits_everywhere() -> None:
    harness = harness_of(BIG, SMALL)
    job = harness.submit(spec(gpus=1))
    given = harness.job(job).spec
    assert (given.cpu_milli, given.memory_mib) == (3_000, 14 * GIB)
    assert given.by_default == {
        "cpu_milli": "share per GPU of node gpu02",
        "memory_mib": "share per GPU of node gpu02",
    }
    assert size_of(harness, spec(gpus=1, gpu_models=("H100",))) == (14, 230)
    assert size_of(harness, spec(gpus=8, nodes=1)) == (115, 1843)


def test_default_sizes_let_jobs_use_every_gpu_of_a_node() -> None:
    harness = harness_of({"cpus": 2, "memory_gib": 3})
    jobs = [harness.submit(spec(gpus=1)) for _ in range(8)]
    assert sorted(start.job for start in harness.tick()) == jobs


def test_small_job_without_gpus_leaves_room_for_default_jobs_on_all_gpus() -> None:
    harness = harness_of({"cpus": 64, "memory_gib": 512})
    jobs = [harness.submit(spec(gpus=gpus)) for gpus in (0, *[1] * 8)]
    assert sorted(start.job for start in harness.tick()) == jobs


def test_configured_and_queue_defaults_override_the_gpu_share() -> None:
    defaults = JobDefaults(2_000, 8 * GIB, 4_000, 20 * GIB)
    harness = harness_of(BIG, defaults=defaults, long=JobDefaults(memory_mib_per_gpu=30 * GIB))
    assert size_of(harness, spec(gpus=2)) == (8, 40)
    assert size_of(harness, spec()) == (2, 8)
    assert size_of(harness, spec(gpus=2, queue="long")) == (8, 60)
    harness = harness_of(SMALL, defaults=JobDefaults(memory_mib_per_gpu=40 * GIB))
    assert size_of(harness, spec(gpus=2)) == (7, 64), "more than a node has would never be placed"


def test_default_sizes_are_provisional_until_the_first_node_joins() -> None:
    harness = harness_of()
    job, stated = harness.submit(spec(gpus=1)), harness.submit(spec(gpus=1, cpu_milli=2_000, memory_mib=GIB))
    assert set(harness.job(job).spec.by_default.values()) == {PROVISIONAL}
    later = harness.restarted()
    for each in (harness, later):
        each.join("gpu01", **BIG)
        assert (each.job(job).spec.cpu_milli, each.job(job).spec.memory_mib) == (14_000, 230 * GIB)
        assert each.job(stated).spec.memory_mib == GIB
        assert [start.cpu_milli for start in each.tick()] == [14_000, 2_000]


def test_equal_jobs_of_two_profiles_get_shares_of_the_nodes_of_their_own_profile() -> None:
    left = Profile("left", PIPELINE, nodes=(parse_term("node in gpu01"),), queues=("left",))
    right = Profile("right", PIPELINE, nodes=(parse_term("node in gpu02"),), queues=("right",))
    rules = replace(PIPELINE.rules, defaults=JobDefaults())
    harness = EngineHarness(replace(PIPELINE, rules=rules, profiles=(left, right)))
    harness.join("gpu01", **BIG)
    harness.join("gpu02", **SMALL)
    assert size_of(harness, spec(1, queue="left")) == (14, 230)
    assert size_of(harness, spec(1, queue="right")) == (3, 14)


def test_spec_that_is_submitted_again_gets_the_sizes_of_the_nodes_of_that_time() -> None:
    harness, asked = harness_of(BIG), spec(1)
    assert size_of(harness, asked) == (14, 230)
    harness.join("gpu02", **SMALL)
    assert size_of(harness, asked) == (3, 14)


def test_edit_recomputes_default_sizes() -> None:
    harness = harness_of(BIG)
    harness.tell_drain("gpu01")
    job = harness.submit(spec(gpus=1, cpu_milli=2_000))
    harness.tell(job_inputs.Edit(job, "ada", {"gpus": 4}))
    assert (harness.job(job).spec.cpu_milli, harness.job(job).spec.memory_mib) == (2_000, 921 * GIB)
    harness.tell(job_inputs.Edit(job, "ada", {"memory_mib": 5 * GIB}))
    harness.tell(job_inputs.Edit(job, "ada", {"gpus": 1}))
    assert harness.job(job).spec.memory_mib == 5 * GIB
    assert harness.job(job).spec.by_default == {}
    harness.tell(job_inputs.Edit(job, "ada", {"memory_mib": None}))
    assert harness.job(job).spec.memory_mib == 230 * GIB
