"""CPU and memory of jobs that ask for none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.commands.resource_sizes import PROVISIONAL
from controller.core.model import inputs
from controller.core.model.request import JobDefaults
from controller.core.quota.quotas import QueueRule, QuotaConfig
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.spec import JobSpec

GIB = 1024


def harness(
    *nodes: dict[str, Any], defaults: JobDefaults | None = None, **queues: JobDefaults
) -> EngineHarness:
    rules = QuotaConfig({name: QueueRule(defaults=each) for name, each in queues.items()})
    made = EngineHarness(replace(PIPELINE, rules=replace(rules, defaults=defaults or JobDefaults())))
    for number, host in enumerate(nodes, 1):
        made.join(f"gpu{number:02}", **host)
    return made


def size_of(there: EngineHarness, asked: JobSpec) -> tuple[float, float]:
    """CPUs and GiB per node that the job was given."""
    given = there.job(there.submit(asked)).spec
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
    assert size_of(harness(BIG), spec(**asked)) == size


def test_gpus_of_several_nodes_count_by_node() -> None:
    there = harness(BIG, BIG)
    assert size_of(there, spec(gpus=16)) == (115, 1843)
    assert size_of(there, spec(gpus=4, nodes=2)) == (28, 460)


def test_where_nodes_differ_the_smallest_share_counts_and_the_job_fits_everywhere() -> None:
    there = harness(BIG, SMALL)
    job = there.submit(spec(gpus=1))
    given = there.job(job).spec
    assert (given.cpu_milli, given.memory_mib) == (3_000, 14 * GIB)
    assert given.by_default == {
        "cpu_milli": "share per GPU of node gpu02",
        "memory_mib": "share per GPU of node gpu02",
    }
    assert size_of(there, spec(gpus=1, gpu_models=("H100",))) == (14, 230)
    assert size_of(there, spec(gpus=8, nodes=1)) == (115, 1843)


def test_every_gpu_can_be_used_by_jobs_that_ask_for_nothing_else() -> None:
    there = harness({"cpus": 2, "memory_gib": 3})
    jobs = [there.submit(spec(gpus=1)) for _ in range(8)]
    assert sorted(start.job for start in there.tick()) == jobs


def test_small_job_without_gpus_leaves_room_for_default_jobs_on_all_gpus() -> None:
    cluster = harness({"cpus": 64, "memory_gib": 512})
    jobs = [cluster.submit(spec(gpus=gpus)) for gpus in (0, *[1] * 8)]
    assert sorted(start.job for start in cluster.tick()) == jobs


def test_the_configuration_and_the_queue_come_before_the_share() -> None:
    defaults = JobDefaults(2_000, 8 * GIB, 4_000, 20 * GIB)
    there = harness(BIG, defaults=defaults, long=JobDefaults(memory_mib_per_gpu=30 * GIB))
    assert size_of(there, spec(gpus=2)) == (8, 40)
    assert size_of(there, spec()) == (2, 8)
    assert size_of(there, spec(gpus=2, queue="long")) == (8, 60)
    there = harness(SMALL, defaults=JobDefaults(memory_mib_per_gpu=40 * GIB))
    assert size_of(there, spec(gpus=2)) == (7, 64), "more than a node has would never be placed"


def test_before_a_node_is_known_the_default_is_provisional_and_settled_when_one_joins() -> None:
    there = harness()
    job, stated = there.submit(spec(gpus=1)), there.submit(spec(gpus=1, cpu_milli=2_000, memory_mib=GIB))
    assert set(there.job(job).spec.by_default.values()) == {PROVISIONAL}
    later = there.restarted()
    for each in (there, later):
        each.join("gpu01", **BIG)
        assert (each.job(job).spec.cpu_milli, each.job(job).spec.memory_mib) == (14_000, 230 * GIB)
        assert each.job(stated).spec.memory_mib == GIB
        assert [start.cpu_milli for start in each.tick()] == [14_000, 2_000]


def test_a_change_of_what_the_default_depends_on_works_it_out_again() -> None:
    there = harness(BIG)
    there.tell_drain("gpu01")
    job = there.submit(spec(gpus=1, cpu_milli=2_000))
    there.tell(inputs.Edit(job, "ada", {"gpus": 4}))
    assert (there.job(job).spec.cpu_milli, there.job(job).spec.memory_mib) == (2_000, 921 * GIB)
    there.tell(inputs.Edit(job, "ada", {"memory_mib": 5 * GIB}))
    there.tell(inputs.Edit(job, "ada", {"gpus": 1}))
    assert there.job(job).spec.memory_mib == 5 * GIB
    assert there.job(job).spec.by_default == {}
    there.tell(inputs.Edit(job, "ada", {"memory_mib": None}))
    assert there.job(job).spec.memory_mib == 230 * GIB
