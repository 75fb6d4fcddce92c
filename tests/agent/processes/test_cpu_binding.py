"""Attempts get their own CPUs near their GPUs, and prefer memory of the same NUMA node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.attempts.launch.cpu_allocation import CpuAllocator
from agent.host.facts import HostFacts
from tests.agent.agent_process import HERE, AgentProcess, eventually
from wire.agent.orders import Start

Run = Callable[..., AgentProcess]
# Two sockets of two cores with two threads each: 0 and 4 are one core.
SOCKETS = HostFacts(
    cpus=8,
    memory_mib=1,
    numa={0: [0, 1, 4, 5], 1: [2, 3, 6, 7]},
    all_cpus=tuple(range(8)),
    siblings={cpu: (cpu % 4, cpu % 4 + 4) for cpu in range(8)},
)


def order(job: int, cpus: float, numa: tuple[int, ...] = ()) -> Start:
    return Start(job, 1, ("true",), "x", int(cpus * 1_000), 1, numa=numa)


@pytest.mark.parametrize(
    ("mode", "story"),
    [
        # Whole cores first, siblings together; the socket that is fuller takes small jobs.
        ("cores", [(2, (), [0, 4], [0]), (2, (), [1, 5], [0]), (4, (), [2, 3, 6, 7], [1]), (1, (), [], [])]),
        ("cores", [(1, (1,), [2], [1]), (2, (1,), [3, 7], [1]), (1, (1,), [6], [1])]),
        # No own CPUs for a part of a CPU, or when too few are free: all CPUs of its sockets.
        (
            "cores",
            [(0.5, (0,), [0, 1, 4, 5], [0]), (5, (0,), [0, 1, 4, 5], [0]), (6, (), [0, 1, 2, 4, 5, 6], [])],
        ),
        ("numa", [(2, (0,), [0, 1, 4, 5], [0]), (2, (), [], [])]),
        ("none", [(2, (0,), [], [])]),
    ],
)
def test_cpus_chosen_for_each_attempt(
    mode: str, story: list[tuple[float, tuple[int, ...], list[int], list[int]]]
) -> None:
    cores = CpuAllocator(SOCKETS, mode, 8, lambda key: False)
    for job, (cpus, numa, *expected) in enumerate(story):
        assert list(cores.choose((job, 1), order(job, cpus, numa))) == expected


def test_cpus_are_returned_when_their_attempt_has_ended() -> None:
    over: set[int] = set()
    cores = CpuAllocator(SOCKETS, "cores", 8, lambda key: key[0] in over)
    assert cores.choose((1, 1), order(1, 8))[0] == list(range(8))
    assert cores.choose((2, 1), order(2, 8))[0] == []
    over.add(1)
    assert cores.choose((3, 1), order(3, 8))[0] == list(range(8))


def test_no_cpus_are_bound_on_a_host_that_offers_more_than_it_has() -> None:
    cores = CpuAllocator(SOCKETS, "cores", 64, lambda key: False)
    assert cores.choose((1, 1), order(1, 2)) == ([], [])


def allowed(agent: AgentProcess, job: int, numa: tuple[int, ...] = ()) -> str:
    """The CPUs a running job may use."""
    agent.start(job, "sh", "-c", "grep Cpus_allowed_list /proc/self/status; exec sleep 1000", numa=numa)
    return eventually(lambda: agent.log(job).decode()).split()[1]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_jobs_have_different_cpus_also_after_an_agent_restart(run: Run) -> None:
    first = run()
    one = allowed(first, 1)
    first.kill()
    second = run()
    other = allowed(second, 2)
    assert one.isdigit()
    assert other.isdigit()
    assert one != other


def test_job_without_whole_cpus_may_use_its_numa_node(run: Run) -> None:
    listed = Path("/sys/devices/system/node/node0/cpulist")
    if not listed.exists():
        pytest.skip("this host does not tell its NUMA nodes")
    assert allowed(run("--jobs", '{"bind": "numa"}'), 1, (0,)) == listed.read_text().strip()


def test_memory_is_preferred_from_the_numa_node() -> None:
    if not Path("/proc/self/numa_maps").exists():
        pytest.skip("this kernel knows no memory policy")
    code = (
        "from agent.processes.cpu_binding import bind_process; bind_process([], [0]); "
        "print(open('/proc/self/numa_maps').readline())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "prefer:0"
