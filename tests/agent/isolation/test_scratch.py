"""Scratch directories: their owners, their size, and their removal."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.isolation import cgroup_detection, scratch
from agent.isolation.scratch import ScratchArea, ScratchMeter, ScratchRefused
from tests import users
from tests.agent.agent_process import AgentProcess, eventually


def test_scratch_directory_is_private_to_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "corral-x" / "1.1"
    scratch.make_directory(str(folder), None)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o711
    (folder / "left").write_text("by an earlier one")
    scratch.make_directory(str(folder), None)
    assert list(folder.iterdir()) == []
    assert scratch.remove_directory(str(folder))
    assert list(folder.parent.iterdir()) == []  # the root stays: its name must not become free


@pytest.mark.parametrize("mode", [0o777, 0o713])
def test_scratch_root_writable_by_others_is_refused(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "corral-x"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(ScratchRefused, match="can be written to by others"):
        scratch.make_directory(str(root / "1.1"), None)


def test_link_in_place_of_a_scratch_directory_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "corral-x").symlink_to(elsewhere)
    with pytest.raises(ScratchRefused, match="is not a directory but a file or a link"):
        scratch.make_directory(str(tmp_path / "corral-x" / "1.1"), None)


def dig(folder: Path, depth: int) -> None:
    """Directories nested deeper than paths are long, descriptors are many and Python recurses."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_scratch_directory_is_removed_completely_without_touching_link_targets(tmp_path: Path) -> None:
    """The directory contains directories without permissions, names that are not UTF-8, and links to other
    places.
    """
    folder, outside = tmp_path / "root" / "1.1", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    scratch.make_directory(str(folder), None)
    (folder / "shut" / "in").mkdir(parents=True)
    (folder / "shut" / "in" / "file").write_text("x")
    (folder / "shut" / "in").chmod(0)
    (folder / "shut").chmod(0)
    (folder / "link").symlink_to(outside)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n")).write_text("x")
    deep = folder
    for _ in range(60):
        deep = deep / "d"
        deep.mkdir()
    dig(folder, 3_000)
    assert scratch.remove_directory(str(folder))
    assert not folder.exists()
    assert (outside / "kept").read_text() == "kept"
    folder.symlink_to(outside)
    assert scratch.remove_directory(str(folder))
    assert (outside / "kept").read_text() == "kept"
    assert scratch.remove_directory(str(folder))  # nothing is as good as gone


def rounds(measure: ScratchMeter) -> int:
    """Measure the whole directory once. Return the number of steps."""
    steps = 1
    while measure.step() < scratch.ROUND_PAUSE_S:
        steps += 1
    return steps


def test_scratch_size_counts_disk_blocks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "big").write_bytes(b"x" * (3 << 20))
    os.link(tmp_path / "a" / "big", tmp_path / "again")
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "out").symlink_to("/usr")
    measure = ScratchMeter(str(tmp_path), 4)
    assert rounds(measure) == 1
    assert 3 << 20 <= measure.size < 4 << 20
    assert not measure.over
    (tmp_path / "more").write_bytes(b"x" * (2 << 20))
    rounds(measure)
    assert measure.over
    monkeypatch.setattr(scratch, "ENTRIES_PER_STEP", 2)
    (tmp_path / "more").unlink()
    assert rounds(measure) > 2
    assert not measure.over


def test_overuse_is_found_before_the_whole_directory_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "ENTRIES_PER_STEP", 1)
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x" * (1 << 20))
    measure = ScratchMeter(str(tmp_path), 2)
    assert rounds(measure) == 3
    assert measure.over


def test_offered_scratch_is_free_space_plus_space_used_by_jobs(tmp_path: Path) -> None:
    area = ScratchArea(str(tmp_path), "x")
    found = os.statvfs(tmp_path)
    free = found.f_bavail * found.f_frsize >> 20
    assert 0 <= area.mib([]) <= free
    assert area.mib([]) % 1024 == 0
    place = tmp_path / "attempt"
    place.mkdir()
    scratch.record_bytes(str(place), 5 << 30)
    assert scratch.recorded_bytes(str(place)) == 5 << 30
    assert area.mib([str(place)]) >= area.mib([]) + 4 * 1024
    assert ScratchArea(str(tmp_path), "x", 123).mib([str(place)]) == 123
    nowhere = ScratchArea(str(tmp_path / "none"), "x", 123)
    assert nowhere.mib([]) == 0
    assert "there is no directory" in nowhere.describe(0)


def test_leftover_scratch_directories_are_found(tmp_path: Path) -> None:
    area = ScratchArea(str(tmp_path), "x")
    assert area.leftovers([]) == []
    for key in ("1.1", "2.1"):
        scratch.make_directory(area.directory(key), None)
    assert area.leftovers(["2.1"]) == [area.directory("1.1")]


Run = Callable[..., AgentProcess]
SHOW = 'cd "$CORRAL_SCRATCH"; pwd; stat -c "%a %U" .; echo x > file; '


def remaining(agent: AgentProcess, options: tuple[str, ...]) -> list[str]:
    """The scratch directories of an agent."""
    roots = list(Path(options[1]).glob("corral-*"))
    return sorted(each.name for root in roots for each in root.iterdir())


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    disk = tmp_path / "disk"
    disk.mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)  # another user passes through
    return "--scratch-dir", str(disk), "--scratch", "1G"


def test_attempt_gets_its_own_scratch_directory_until_its_end(
    run: Run, options: tuple[str, ...], python: str
) -> None:
    agent = run(*options, python=python)
    assert agent.hello().facts.storage_mib == 1024
    assert "measured" in agent.hello().facts.handling["scratch"]
    agent.start(1, "sh", "-c", SHOW + "exit 3", scratch_mib=10)
    agent.start(2, "sh", "-c", "echo ${CORRAL_SCRATCH-none}")
    assert (agent.ended(1).code, agent.ended(2).code) == (3, 0)
    folder, mode = agent.log(1).decode().splitlines()
    assert (folder.endswith("/1.1"), mode.split()[0]) == (True, "700")
    assert remaining(agent, options) == []
    assert agent.log(2) == b"none\n"


@users.as_other_users
def test_scratch_directory_belongs_to_the_user_of_the_job(run: Run, options: tuple[str, ...]) -> None:
    agent = run(*options, run_as_self=False)
    agent.start(1, "sh", "-c", SHOW, user="nobody", scratch_mib=10)
    assert agent.ended(1).why == ""
    assert agent.log(1).decode().splitlines()[1] == "700 nobody"
    assert remaining(agent, options) == []


def test_processes_in_scratch_are_killed_before_it_is_removed(run: Run, options: tuple[str, ...]) -> None:
    agent = run(*options)
    busy = "setsid sh -c 'trap \"\" TERM; while :; do echo x > $CORRAL_SCRATCH/$$; done' & exit 0"
    agent.start(1, "sh", "-c", busy, scratch_mib=10, grace_s=0.2)
    assert agent.ended(1).code == 0
    assert remaining(agent, options) == []


def test_scratch_survives_the_agent_and_is_removed_with_the_job(
    run: Run, options: tuple[str, ...], tmp_path: Path
) -> None:
    first = run(*options)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first.start(1, "sh", "-c", f"{SHOW} read -r _ < {gate}; cat file", scratch_mib=10)
    first.started(1)
    first.kill()
    second = run(*options)
    assert remaining(second, options) == ["1.1"]  # it is no leftover
    gate.write_text("go\n")
    assert second.ended(1).code == 0
    assert second.log(1).decode().splitlines()[-1] == "x"
    assert remaining(second, options) == []


def test_scratch_is_removed_after_a_lost_supervisor(run: Run, options: tuple[str, ...]) -> None:
    agent = run(*options)
    agent.start(1, "sh", "-c", SHOW + "sleep 1000", scratch_mib=10)
    agent.started(1)
    os.kill(agent.supervisor(1), signal.SIGKILL)
    assert agent.ended(1).why.startswith("supervisor_lost")
    assert remaining(agent, options) == []


def test_leftover_scratch_is_removed_by_the_next_agent(run: Run, options: tuple[str, ...]) -> None:
    first = run(*options)
    first.start(1, "sh", "-c", SHOW + "sleep 1000", scratch_mib=10)
    first.started(1)
    root = next(Path(options[1]).glob("corral-*"))
    (root / "7.1" / "full").mkdir(parents=True)
    first.kill()
    second = run(*options)
    eventually(lambda: remaining(second, options) == ["1.1"])


WRITES = "head -c 30000000 /dev/zero > $CORRAL_SCRATCH/big; "


def test_job_beyond_its_scratch_is_stopped(run: Run, options: tuple[str, ...]) -> None:
    agent = run(*options)
    agent.start(1, "sh", "-c", WRITES + "sleep 1000", scratch_mib=20, grace_s=0.2)
    expected = "scratch_exceeded: the job used more than the 20 MiB of scratch that it requested"
    assert agent.ended(1).why == expected
    assert remaining(agent, options) == []


def test_job_beyond_its_scratch_is_only_warned_if_configured(
    run: Run, options: tuple[str, ...], tmp_path: Path
) -> None:
    agent = run(*options, "--jobs", '{"scratch_overuse": "flag"}')
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent.start(1, "sh", "-c", f"{WRITES} read -r _ < {gate}", scratch_mib=20)
    agent.started(1)
    eventually(lambda: b"used more than the 20 MiB" in agent.log(1, "stderr"))
    gate.write_text("go\n")
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (0, "")
    assert agent.log(1, "stderr").count(b"used more") == 1


def test_scratch_root_of_other_owners_is_kept(run: Run, options: tuple[str, ...]) -> None:
    agent = run(*options)
    agent.start(1, "true", scratch_mib=10)
    assert agent.ended(1).code == 0
    root = Path(options[1]) / f"corral-{cgroup_detection.cgroup_tag('gpu01', agent.spool.absolute())}"
    root.chmod(0o777)
    agent.start(2, "sh", "-c", 'echo "$CORRAL_SCRATCH"', scratch_mib=10)
    assert agent.ended(2).code == 0
    assert agent.log(2).decode().startswith(f"{root}-")
