"""Control groups of one attempt, made, entered and ended for real."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.isolation import clone_into_cgroup
from agent.isolation.attempt_cgroup import AttemptCgroup, CgroupSpec

V2 = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
FREEZER = "/sys/fs/cgroup/freezer"


def made_in(base: str) -> Iterator[CgroupSpec]:
    folder = f"{base}/corral-test-{os.getpid()}"
    part: CgroupSpec = (folder, base, [])
    yield part
    AttemptCgroup([part]).kill()
    AttemptCgroup([part]).remove()


@pytest.fixture
def whole() -> Iterator[CgroupSpec]:
    """A cgroup v2 that the test may create."""
    for base in V2:
        if os.path.exists(f"{base}/cgroup.controllers") and os.access(base, os.W_OK) and os.geteuid() == 0:
            yield from made_in(base)
            return
    pytest.skip("no v2 control groups for us here")


@pytest.fixture
def freezer() -> Iterator[CgroupSpec]:
    """A cgroup of the v1 freezer that the test may create."""
    if not os.path.exists(f"{FREEZER}/tasks") or not os.access(FREEZER, os.W_OK) or os.geteuid() != 0:
        pytest.skip("no v1 control groups for us here")
    yield from made_in(FREEZER)


def members(part: CgroupSpec) -> list[int]:
    return [int(pid) for pid in Path(part[0], "cgroup.procs").read_text().split()]


def asleep(group: AttemptCgroup) -> int:
    """A process in the cgroup that would run for a long time."""
    pid = group.fork()
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "1000"])
    return pid


def test_process_starts_inside_a_cgroup_v2(whole: CgroupSpec) -> None:
    group = AttemptCgroup([whole])
    group.make()
    pid = clone_into_cgroup.fork_into(whole[0])
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "1000"])
    assert members(whole) == [pid]
    group.kill()
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)
    assert group.remove()


def test_process_is_moved_into_its_cgroup_if_it_cannot_start_there(
    whole: CgroupSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str) -> int:
        raise OSError(f"not into {folder}")

    monkeypatch.setattr(clone_into_cgroup, "fork_into", refuse)
    group = AttemptCgroup([whole])
    group.make()
    pid = asleep(group)
    assert members(whole) == [pid]
    group.kill()
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)


def test_start_in_a_directory_that_is_no_cgroup_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument"):
        clone_into_cgroup.fork_into(str(tmp_path))


def test_frozen_cgroup_is_killed(freezer: CgroupSpec) -> None:
    group = AttemptCgroup([freezer])
    group.make()
    pids = [asleep(group) for _ in range(3)]
    assert sorted(members(freezer)) == sorted(pids)
    assert os.getpid() not in members(freezer)
    group.kill()
    assert [os.waitpid(pid, 0) for pid in pids] == [(pid, signal.SIGKILL) for pid in pids]
    assert group.remove()
