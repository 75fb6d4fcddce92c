"""CPU time and memory of attempts, measured on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.attempts.host_meter import HostMeter, MeasuredAttempt
from agent.attempts.spool import AttemptKey
from agent.isolation.attempt_cgroup import AttemptCgroup
from tests.agent.agent_process import AgentProcess
from wire.agent.reports import AttemptStatus, GpuReport, HostUse, Usage

GROWS = """
import sys, time
held = bytearray(200 << 20)
held[::4096] = b"x" * len(held[::4096])
begun = time.process_time()
while time.process_time() < begun + 0.3: pass
print("ready", flush=True)
sys.stdin.read()
"""
OVER = AttemptStatus(7, 1, pid=9, started_at=0.0, ended_at=100.0, code=0, usage=Usage(0.1, 150))


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A shell with a child that has used 0.3 seconds of CPU time and holds 200 MiB."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", '"$0" -c "$1"; exit 0', sys.executable, GROWS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == "ready\n"
    with shell:
        yield shell
        shell.communicate("")


def meter_in(place: Path) -> HostMeter:
    def directory(_: AttemptKey) -> str:
        return str(place)

    return HostMeter(directory)


def test_processes_below_the_supervisor_are_added_up_without_cgroups(
    tmp_path: Path, parent: subprocess.Popen[str]
) -> None:
    meter = meter_in(tmp_path)
    assert meter.sample([MeasuredAttempt((7, 1), parent.pid, AttemptCgroup([]))]) >= 2.0
    use = meter.uses()[7, 1]
    assert use.cpu_s >= 0.3
    assert 200 <= use.memory_mib == use.peak_mib < 400


def test_peak_survives_a_restart_of_the_agent_and_reaches_the_report(
    tmp_path: Path, parent: subprocess.Popen[str]
) -> None:
    meter_in(tmp_path).sample([MeasuredAttempt((7, 1), parent.pid, AttemptCgroup([]))])
    later = meter_in(tmp_path)
    later.sample([MeasuredAttempt((7, 1), os.getpid(), AttemptCgroup([]))])
    assert later.uses()[7, 1].peak_mib >= 200
    found = later.with_usage(OVER).usage
    assert found is not None
    assert found.memory_mib >= 200
    assert found.cpu_s >= 0.1
    assert later.with_usage(AttemptStatus(7, 1, pid=9)).usage is None, "it still runs"


def test_attempt_without_a_sample_has_the_memory_of_its_largest_process(tmp_path: Path) -> None:
    assert meter_in(tmp_path).with_usage(OVER).usage == Usage(0.1, 150, memory_mib=150)


def test_cgroup_files_of_both_versions(tmp_path: Path) -> None:
    two, cpu, memory = tmp_path / "v2", tmp_path / "cpuacct", tmp_path / "memory"
    for directory, files in (
        (two, {"cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "memory.current": str(300 << 20)}),
        (two, {"memory.stat": f"anon 5\ninactive_file {100 << 20}\n"}),
        (cpu, {"cpuacct.usage": "1500000000\n"}),
        (
            memory,
            {"memory.usage_in_bytes": str(50 << 20), "memory.stat": f"total_inactive_file {20 << 20}\n"},
        ),
    ):
        directory.mkdir(exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    whole = AttemptCgroup([(str(two), "", [])])
    assert (whole.cpu_s(), whole.memory_mib()) == (2.5, 200)
    parts = AttemptCgroup([(str(memory), "", []), (str(cpu), "", [])])
    assert (parts.cpu_s(), parts.memory_mib()) == (1.5, 30)
    assert AttemptCgroup([]).cpu_s() is None
    assert AttemptCgroup([]).memory_mib() is None


def test_agent_reports_a_running_job_and_its_end(run: Callable[..., AgentProcess]) -> None:
    agent = run()
    agent.start(
        7, sys.executable, "-c", GROWS.replace("sys.stdin.read()", "time.sleep(4)"), memory_limit_mib=900
    )
    agent.started(7)

    def found(_: object) -> HostUse | None:
        uses = [use for each in agent.received if isinstance(each, GpuReport) for use in each.uses]
        return next((each.host for each in uses if each.host is not None and each.job == 7), None)

    assert agent.until(found).peak_mib > 0
    usage = agent.ended(7).usage
    assert usage is not None
    assert usage.memory_mib >= 200
    assert usage.cpu_s >= 0.3
