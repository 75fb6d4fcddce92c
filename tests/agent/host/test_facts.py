"""Facts of a host, read from sample directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.host import facts
from wire.agent.reports import NumaFacts


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> facts.HostFacts:
    """A host with two sockets of four CPUs, one of which we may not use."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5, 6})
    (tmp_path / "meminfo").write_text("MemTotal:  2048000 kB\nMemFree: 1 kB\n")
    for number, cpus in enumerate(("0-1,4-5\n", "2-3,6-7\n")):
        folder = tmp_path / "devices" / "system" / "node" / f"node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
        (folder / "distance").write_text("10 21\n" if number == 0 else "21 10\n")
        (folder / "meminfo").write_text(f"Node {number} MemTotal:  1024000 kB\n")
    return facts.read_host(tmp_path, tmp_path)


def test_cpus_and_memory_that_are_present_and_usable(sockets: facts.HostFacts) -> None:
    assert (sockets.cpus, sockets.memory_mib) == (7, 2000)
    assert sockets.numa == {0: [0, 1, 4, 5], 1: [2, 3, 6]}
    assert sockets.nodes == (NumaFacts(0, "0-1,4-5", 1000, (10, 21)), NumaFacts(1, "2-3,6-7", 1000, (21, 10)))


def test_jobs_are_bound_only_if_all_numa_nodes_are_known(sockets: facts.HostFacts) -> None:
    assert sockets.cpus_of((1,)) == [2, 3, 6]
    assert sockets.cpus_of((0, 1)) == [0, 1, 2, 3, 4, 5, 6]
    assert sockets.cpus_of(()) == []
    assert sockets.cpus_of((1, 2)) == []


@pytest.mark.parametrize(
    ("text", "cpus"), [("", []), ("3", [3]), ("0-2,5,7-8\n", [0, 1, 2, 5, 7, 8]), ("\n", [])]
)
def test_cpu_lists(text: str, cpus: list[int]) -> None:
    assert facts.cpu_list(text) == cpus


def test_facts_of_this_host() -> None:
    found = facts.read_host()
    assert found.cpus > 0
    assert found.memory_mib > 0
