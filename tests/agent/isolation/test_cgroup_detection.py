"""Jobs are held to what they asked for and nobody is overlooked, where the kernel gives us groups."""

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
from tests.agent.driving import Driven, alive, carriers, eventually
from wire.agent.frames import Start, Stop

Run = Callable[..., Driven]
ORDER = Start(1, 1, ("true",), "x", 1_500, 100)


def proc(folder: Path, mounts: str, own: str) -> Path:
    """What the kernel would say."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mounts").write_text(mounts)
    (folder / "proc/self/cgroup").write_text(own)
    return folder / "proc"


@pytest.fixture
def delegated(tmp_path: Path) -> Path:
    """A pure v2 host with a group that is ours."""
    group = tmp_path / "v2" / "user.slice" / "ada"
    for place in (tmp_path / "v2", group, group / "corral", group / "corral" / "t"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (place / "cgroup.subtree_control").write_text("")
    return proc(tmp_path, f"cgroup2 {tmp_path}/v2 cgroup2 rw 0 0\n", "0::/user.slice/ada\n")


def test_v2_that_is_delegated_limits_and_ends(delegated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_limits_beyond_what_was_asked_for(
    delegated: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], cpu: str, memory: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    [(_, _, settings)] = cgroup_detection.detect("auto", "t", delegated).parts(
        "1.1", replace(ORDER, **changes), 64
    )
    told = dict(settings)
    assert (told["cpu.max"], told["memory.max"]) == (cpu, memory)
    least = changes.get("best_effort", False)
    assert (told["cpu.weight"], told["memory.low"]) == (("1", "0") if least else ("150", str(100 << 20)))


def test_what_protects_memory_counts_only_below_groups_that_are_protected(
    delegated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    group = delegated.parent / "v2/user.slice/ada"
    for place in (group / "corral", group / "corral/t"):
        (place / "memory.low").write_text("0")
    cgroup_detection.detect("auto", "t", delegated)
    assert [(group / place / "memory.low").read_text() for place in ("corral", "corral/t")] == ["max", "max"]


def test_v1_limits_by_every_controller_it_has(tmp_path: Path) -> None:
    mounts = "".join(
        f"cgroup {tmp_path}/{name} cgroup rw,relatime,{name} 0 0\n" for name in ("memory", "cpu,cpuacct")
    )
    (tmp_path / "memory/mine").mkdir(parents=True)
    (tmp_path / "cpu,cpuacct").mkdir()
    found = cgroup_detection.detect("auto", "t", proc(tmp_path, mounts, "4:cpu,cpuacct:/\n3:memory:/mine\n"))
    assert found.describe() == "cpu, memory by cgroup v1"
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


def test_where_there_are_none_it_is_said(tmp_path: Path) -> None:
    found = cgroup_detection.detect("auto", "t", proc(tmp_path, "", ""))
    assert found.describe() == "none: this host has no control groups"
    assert found.describe_end() == "process tree, and no process left"
    assert cgroup_detection.detect("none", "t").describe() == 'none: [jobs] limits is "none"'
    assert found.parts("1.1", ORDER, 64) == []


# --- real ones, where we may make them ---


def groups(agent: Driven) -> list[Path]:
    """The folders of this agent's attempts."""
    found = cgroup_detection.detect("auto", cgroup_detection.cgroup_tag("gpu01", agent.spool))
    return [Path(folder) for folder, _, _ in found.parts("1.1", ORDER, 64)]


@pytest.fixture
def held(run: Run, spool: Path) -> Iterator[Driven]:
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


def test_the_facts_say_how_jobs_are_held(held: Driven) -> None:
    told = held.hello().facts.handling
    assert told["limits"].startswith("cpu, memory, pids by cgroup v")
    assert told["end"].endswith("and no process left")


def test_a_job_that_needs_more_memory_than_it_asked_for_is_ended_and_told_why(held: Driven) -> None:
    held.start(1, sys.executable, "-c", "print(len(bytearray(400 << 20)))")
    ended = held.ended(1)
    assert ended.signal == signal.SIGKILL
    told = re.fullmatch(
        r"out_of_memory: it had 100 MiB of memory, and it reached (\d+) MiB; "
        r"ask for more, such as --memory (\d+)M",
        ended.why,
    )
    assert told is not None, ended.why
    assert 90 <= int(told[1]) <= 110
    assert int(told[2]) >= 200
    held.start(2, sys.executable, "-c", "print(len(bytearray(20 << 20)))")
    assert (held.ended(2).code, held.ended(2).why) == (0, "")


def test_a_fork_bomb_hurts_nobody_else_and_ends(held: Driven) -> None:
    """Each process starts two more in sessions of their own, and none of them listens."""
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


def test_who_hid_is_found_when_the_supervisor_is_lost(held: Driven, tmp_path: Path) -> None:
    """No environment, a session of its own, an orphan: only its group still knows whose it is."""
    escape = (
        "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
        f"open('{tmp_path}/hidden', 'w').write(str(os.getpid())); time.sleep(1000)"
    )
    held.start(1, "sh", "-c", f'env -i "{sys.executable}" -c "{escape}"; echo gone; sleep 1000')
    eventually(lambda: held.log(1) == b"gone\n")
    told = tmp_path / "hidden"
    hidden = int(eventually(lambda: told.exists() and told.read_text()))
    os.kill(held.supervisor(1), signal.SIGKILL)
    assert held.ended(1).why == "supervisor_lost"
    assert not alive(hidden)


def test_a_stopped_job_ends_too(held: Driven) -> None:
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
def test_the_kernel_holds_each_class_of_service_to_what_it_was_promised(held: Driven, name: str) -> None:
    """Read back from the kernel: weight and most of CPU time; most of memory, and what is left alone."""
    changes, cpu, memory = CLASSES[name]
    held.start(1, "sleep", "1000", **changes)
    held.started(1)
    files = [file for group in groups(held) for file in group.iterdir() if _mine(file)]
    told = {file.name: file.read_text().split() for file in files}
    held.send(Stop(1, 1, grace_s=0.0))
    held.ended(1)
    if "cpu.max" in told:
        weight, quota, most, asked = "cpu.weight", told["cpu.max"][0], "memory.max", "memory.low"
        cpu = (max(1, cpu[0] * 100 // 1_024), cpu[1])
    else:
        quota, weight = told["cpu.cfs_quota_us"][0], "cpu.shares"
        most, asked = "memory.limit_in_bytes", "memory.soft_limit_in_bytes"
    endless = ("max", "-1", str(_NO_LIMIT))
    assert int(told[weight][0]) == cpu[0]
    assert quota in endless if cpu[1] is None else int(quota) == cpu[1]
    found = told[most][0]
    assert found in endless if memory[0] is None else int(found) == memory[0] << 20
    assert int(told[asked][0]) == memory[1] << 20


_NO_LIMIT = (1 << 63) - 4_096


def _mine(file: Path) -> bool:
    return file.name in {
        *("cpu.shares", "cpu.cfs_quota_us", "cpu.weight", "cpu.max", "memory.max", "memory.low"),
        *("memory.limit_in_bytes", "memory.soft_limit_in_bytes"),
    }
