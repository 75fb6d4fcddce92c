"""Jobs are limited to their requests and killed completely if the kernel offers control groups."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.isolation import cgroup_detection
from tests.agent.agent_process import AgentProcess, alive, carriers, eventually
from wire.agent.orders import Start, Stop

Run = Callable[..., AgentProcess]
ORDER = Start(1, 1, ("true",), "x", 1_500, 100)


def proc(folder: Path, mounts: str, own: str) -> Path:
    """Sample files in the form of the kernel's."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mounts").write_text(mounts)
    (folder / "proc/self/cgroup").write_text(own)
    return folder / "proc"


@pytest.fixture
def delegated(tmp_path: Path) -> Path:
    """A host with only cgroup v2, and a cgroup that belongs to the agent."""
    group = tmp_path / "v2" / "user.slice" / "ada"
    for place in (tmp_path / "v2", group, group / "corral", group / "corral" / "t"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (place / "cgroup.subtree_control").write_text("")
    return proc(tmp_path, f"cgroup2 {tmp_path}/v2 cgroup2 rw 0 0\n", "0::/user.slice/ada\n")


def test_delegated_cgroup_v2_limits_and_kills(delegated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    found = cgroup_detection.detect("auto", "t", delegated)
    group = delegated.parent / "v2/user.slice/ada"
    assert found.describe() == "cpu, memory, pids by cgroup v2"
    assert (group / "corral-agent/cgroup.procs").read_text() == "0"
    assert set((group / "cgroup.subtree_control").read_text().split()) == {"+cpu", "+memory", "+pids"}
    assert found.parts("1.1", ORDER, 64) == [
        (
            f"{group}/corral/t/1.1",
            f"{group}/corral-agent",
            [
                ("cpu.weight", "150"),
                ("cpu.max", "150000 100000"),
                ("memory.max", str(100 << 20)),
                ("memory.low", str(100 << 20)),
                ("memory.oom.group", "1"),
                ("pids.max", "64"),
            ],
        )
    ]


@pytest.mark.parametrize(
    ("changes", "cpu", "memory"),
    [
        ({"cpu_limit_milli": 4_000}, "400000 100000", str(100 << 20)),
        ({"memory_limit_mib": 300}, "150000 100000", str(300 << 20)),
        ({"best_effort": True}, "max 100000", "max"),
    ],
)
def test_cgroup_limits_above_requests(
    delegated: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], cpu: str, memory: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    [(_, _, settings)] = cgroup_detection.detect("auto", "t", delegated).parts(
        "1.1", replace(ORDER, **changes), 64
    )
    written = dict(settings)
    assert (written["cpu.max"], written["memory.max"]) == (cpu, memory)
    least = changes.get("best_effort", False)
    assert (written["cpu.weight"], written["memory.low"]) == (
        ("1", "0") if least else ("150", str(100 << 20))
    )


def test_memory_protection_is_set_on_parent_cgroups(delegated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    group = delegated.parent / "v2/user.slice/ada"
    for place in (group / "corral", group / "corral/t"):
        (place / "memory.low").write_text("0")
    cgroup_detection.detect("auto", "t", delegated)
    assert [(group / place / "memory.low").read_text() for place in ("corral", "corral/t")] == ["max", "max"]


def test_cgroup_v1_limits_use_every_controller(tmp_path: Path) -> None:
    mounts = "".join(
        f"cgroup {tmp_path}/{name} cgroup rw,relatime,{name} 0 0\n" for name in ("memory", "cpu,cpuacct")
    )
    (tmp_path / "memory/mine").mkdir(parents=True)
    (tmp_path / "cpu,cpuacct").mkdir()
    found = cgroup_detection.detect("auto", "t", proc(tmp_path, mounts, "4:cpu,cpuacct:/\n3:memory:/mine\n"))
    assert (found.describe(), found.why) == ("cpu, memory by cgroup v1", "")
    assert found.parts("1.1", ORDER, 64) == [
        (
            f"{tmp_path}/cpu,cpuacct/corral/t/1.1",
            f"{tmp_path}/cpu,cpuacct",
            [("cpu.shares", "1536"), ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")],
        ),
        (
            f"{tmp_path}/memory/mine/corral/t/1.1",
            f"{tmp_path}/memory/mine",
            [("memory.limit_in_bytes", str(100 << 20)), ("memory.soft_limit_in_bytes", str(100 << 20))],
        ),
    ]
    assert all(not settings for _, _, settings in found.parts("1.1", None, 64))


def test_what_a_preflight_finds_is_what_an_agent_will_use(tmp_path: Path) -> None:
    mounts = f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\ncgroup {tmp_path}/gone cgroup rw,cpu 0 0\n"
    (tmp_path / "memory").mkdir()
    seen = proc(tmp_path, mounts, "4:cpu:/mine\n3:memory:/\n")
    assert cgroup_detection.writable_v1(seen) == ("memory",)


def test_a_preflight_where_sshd_has_no_cgroup_mounts_says_none(tmp_path: Path) -> None:
    report = f"{sys.executable} -m agent --name a --spool {tmp_path}/spool --gpus none --check"
    made = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"umount -R /sys/fs/cgroup && exec {report}"],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"no mount namespace here: {made.stderr[-200:]}")
    [check] = [each for each in json.loads(made.stdout)["checks"] if each["name"] == "cgroups"]
    assert (check["verdict"], check["found"].split(" ")[0]) == ("note", "none")


def test_cgroups_without_controllers_for_limits_are_described(tmp_path: Path) -> None:
    """The freezer can end jobs, but not limit them."""
    (tmp_path / "freezer").mkdir()
    mounts = f"cgroup {tmp_path}/freezer cgroup rw,freezer 0 0\n"
    found = cgroup_detection.detect("auto", "t", proc(tmp_path, mounts, "4:freezer:/\n"))
    assert found.describe() == "none: no cgroup controller (cpu, memory, pids) is available to this agent"
    assert found.describe_end() == "the whole group, and no process left"


def test_missing_cgroups_are_described(tmp_path: Path) -> None:
    found = cgroup_detection.detect("auto", "t", proc(tmp_path, "", ""))
    assert found.describe() == "none: this host has no control groups"
    assert found.describe_end() == "process tree, and no process left"
    assert cgroup_detection.detect("none", "t").describe() == 'none: [jobs] limits is "none"'
    assert found.parts("1.1", ORDER, 64) == []


# --- real control groups, if they can be made ---


def groups(agent: AgentProcess) -> list[Path]:
    """The folders of this agent's attempts."""
    found = cgroup_detection.detect("auto", cgroup_detection.cgroup_tag("gpu01", agent.spool))
    return [Path(folder) for folder, _, _ in found.parts("1.1", ORDER, 64)]


@pytest.fixture
def held(run: Run, spool: Path) -> Iterator[AgentProcess]:
    """An agent that holds jobs to their limits."""
    found = cgroup_detection.detect("auto", cgroup_detection.cgroup_tag("gpu01", spool))
    if set(found.limited) != {"cpu", "memory", "pids"}:
        pytest.skip(f"no control groups for us here: {found.describe()}")
    agent = run("--jobs", '{"max_processes": 40}')
    yield agent
    left = [folder for folder in groups(agent) if folder.exists()]
    for folder in groups(agent):
        for pid in (folder / "cgroup.procs").read_text().split() if folder.exists() else []:
            os.kill(int(pid), signal.SIGKILL)
        for place in (folder, folder.parent):
            if place.exists():
                eventually(lambda place=place: _removed(place))
    assert left == []


def _removed(place: Path) -> bool:
    try:
        place.rmdir()
    except OSError:
        return False
    return True


def test_node_facts_describe_limits(held: AgentProcess) -> None:
    handling = held.hello().facts.handling
    assert handling["limits"].startswith("cpu, memory, pids by cgroup v")
    assert handling["end"].endswith("and no process left")


def test_job_beyond_its_memory_is_killed_with_a_reason(held: AgentProcess) -> None:
    held.start(1, sys.executable, "-c", "print(len(bytearray(400 << 20)))")
    ended = held.ended(1)
    assert ended.signal == signal.SIGKILL
    reason = re.fullmatch(
        r"out_of_memory: 100 MiB of memory were not enough for the job \(its peak was (\d+) MiB\); "
        r"request more, such as --memory (\d+)M",
        ended.why,
    )
    assert reason is not None, ended.why
    assert 90 <= int(reason[1]) <= 110
    assert int(reason[2]) >= 200
    held.start(2, sys.executable, "-c", "print(len(bytearray(20 << 20)))")
    assert (held.ended(2).code, held.ended(2).why) == (0, "")


def test_fork_bomb_is_killed_without_affecting_other_jobs(held: AgentProcess) -> None:
    """Each process of the job starts two more in new sessions, and all ignore SIGTERM."""
    bomb = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('x', flush=True)\n"
        "while True:\n"
        "    try:\n"
        "        os.fork() or os.setsid()\n"
        "    except OSError:\n"
        "        time.sleep(0.01)\n"
    )
    held.start(1, sys.executable, "-c", bomb)
    eventually(lambda: held.log(1))
    eventually(lambda: len([*carriers(f"{held.spool}/attempts/1.1")]) > 30)
    assert len([*carriers(f"{held.spool}/attempts/1.1")]) <= 41
    held.start(2, "true")
    assert held.ended(2).code == 0
    held.send(Stop(1, 1, grace_s=0.0))
    held.ended(1)
    assert [*carriers(f"{held.spool}/attempts/1.1")] == []


def test_hidden_process_is_found_by_its_cgroup_when_the_supervisor_is_lost(
    held: AgentProcess, tmp_path: Path
) -> None:
    """The process is an orphan in a new session and without environment: only its cgroup identifies its
    attempt.
    """
    escape = (
        "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
        f"open('{tmp_path}/hidden', 'w').write(str(os.getpid())); time.sleep(1000)"
    )
    held.start(1, "sh", "-c", f'env -i "{sys.executable}" -c "{escape}"; echo gone; sleep 1000')
    eventually(lambda: held.log(1) == b"gone\n")
    pid_file = tmp_path / "hidden"
    hidden = int(eventually(lambda: pid_file.exists() and pid_file.read_text()))
    os.kill(held.supervisor(1), signal.SIGKILL)
    assert held.ended(1).why == "supervisor_lost"
    assert not alive(hidden)


def test_stopped_job_is_killed_in_its_cgroup(held: AgentProcess) -> None:
    held.start(1, "sh", "-c", "echo ready; kill -STOP $$; sleep 1000")
    eventually(lambda: held.log(1) == b"ready\n")
    held.send(Stop(1, 1, grace_s=60.0))
    assert held.ended(1).signal == signal.SIGTERM


CLASSES = {
    "guaranteed": ({}, (1_024, 100_000), (100, 100)),
    "burstable": ({"cpu_limit_milli": 4_000, "memory_limit_mib": 300}, (1_024, 400_000), (300, 100)),
    "best-effort": ({"best_effort": True}, (2, None), (None, 0)),
}


@pytest.mark.parametrize("name", CLASSES)
def test_cgroup_settings_of_each_class_of_service(held: AgentProcess, name: str) -> None:
    """Read the CPU weight and limit, the memory limit and the protected memory from the kernel."""
    changes, cpu, memory = CLASSES[name]
    held.start(1, "sleep", "1000", **changes)
    held.started(1)
    files = [file for group in groups(held) for file in group.iterdir() if _mine(file)]
    settings = {file.name: file.read_text().split() for file in files}
    held.send(Stop(1, 1, grace_s=0.0))
    held.ended(1)
    if "cpu.max" in settings:
        weight, quota, most, asked = "cpu.weight", settings["cpu.max"][0], "memory.max", "memory.low"
        cpu = (max(1, cpu[0] * 100 // 1_024), cpu[1])
    else:
        quota, weight = settings["cpu.cfs_quota_us"][0], "cpu.shares"
        most, asked = "memory.limit_in_bytes", "memory.soft_limit_in_bytes"
    endless = ("max", "-1", str(_NO_LIMIT))
    assert int(settings[weight][0]) == cpu[0]
    assert quota in endless if cpu[1] is None else int(quota) == cpu[1]
    found = settings[most][0]
    assert found in endless if memory[0] is None else int(found) == memory[0] << 20
    assert int(settings[asked][0]) == memory[1] << 20


_NO_LIMIT = (1 << 63) - 4_096


def _mine(file: Path) -> bool:
    return file.name in {
        *("cpu.shares", "cpu.cfs_quota_us", "cpu.weight", "cpu.max", "memory.max", "memory.low"),
        *("memory.limit_in_bytes", "memory.soft_limit_in_bytes"),
    }
