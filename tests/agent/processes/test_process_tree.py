"""Finding processes: below a process, or by their marks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.processes import process_tree
from tests.agent.agent_process import eventually


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A parent, a child and a grandchild, in a session of their own, carrying a mark."""
    command = ["sh", "-c", "sh -c 'sleep 1000 & sleep 1000 & wait' & wait"]
    env = {**os.environ, "CORRAL_SPOOL": "/spool/attempts/7.1"}
    with subprocess.Popen(command, env=env, start_new_session=True) as parent:
        eventually(lambda: len(process_tree.descendants(parent.pid)) == 3)
        yield parent
        os.killpg(parent.pid, 9)


def test_descendants_are_found_with_and_without_the_children_file(
    family: subprocess.Popen[bytes],
) -> None:
    listed = process_tree.descendants(family.pid)
    children = process_tree._children_by_scan()
    (child,) = children(family.pid)
    assert [child, *children(child)] == listed
    assert process_tree.descendants(1 << 22) == []


def test_escaped_processes_are_found_by_their_mark(family: subprocess.Popen[bytes]) -> None:
    everybody = {family.pid, *process_tree.descendants(family.pid)}
    assert set(process_tree.find_strays("/spool/attempts/7.1", "7.1", None, None)) == everybody
    assert process_tree.find_strays("/spool/attempts/7.10", "7.10", None, None) == []
    assert process_tree.find_strays("/spool/attempts/7", "7", None, None) == []


def test_escaped_processes_are_found_by_their_session_unless_it_was_reused(
    family: subprocess.Popen[bytes],
) -> None:
    everybody = {family.pid, *process_tree.descendants(family.pid)}
    ticks = process_tree.start_ticks(family.pid)
    assert ticks is not None
    assert set(process_tree.find_strays("/x/y/z", "9.9", family.pid, ticks)) == everybody
    assert process_tree.find_strays("/x/y/z", "9.9", family.pid, ticks + 1) == []


def test_forked_child_before_exec_is_found_by_the_name_of_its_supervisor(tmp_path: Path) -> None:
    """The child still has the name of its supervisor and the environment of the fork server."""
    env = {**os.environ, "CORRAL_SPOOL": "/spool"}
    command = ["sh", "-c", "printf 12345678901.12 > /proc/self/comm; echo named; read -r _"]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as early:
        assert early.stdout is not None
        assert early.stdout.readline() == b"named\n"
        assert process_tree.find_strays("/spool/attempts/12345678901.12", "12345678901.12", None, None) == [
            early.pid
        ]
        assert process_tree.find_strays("/other/attempts/12345678901.12", "12345678901.12", None, None) == []
        early.kill()


def test_fork_server_is_no_attempt() -> None:
    """Fork servers and supervisors have the same environment, and differ in their process names."""
    env = {**os.environ, "CORRAL_SPOOL": "/spool"}
    for name, attempts in ((process_tree.FORK_SERVER_NAME, set()), ("42.1", {"42.1"})):
        command = ["sh", "-c", f"printf {name} > /proc/self/comm; echo named; read -r _"]
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as early:
            assert early.stdout is not None
            assert early.stdout.readline() == b"named\n"
            assert process_tree.attempts_with_processes("/spool", "") == attempts
            early.kill()


def test_any_process_name_in_stat_is_parsed(tmp_path: Path) -> None:
    program = tmp_path / ") R 1 1 ("
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "1000"]) as odd:
        eventually(lambda: Path(f"/proc/{odd.pid}/comm").read_text() == ") R 1 1 (\n")
        assert process_tree._stat(odd.pid)[1] == str(os.getpid())
        odd.kill()
    assert process_tree.start_ticks(odd.pid) is None


def test_a_process_that_ends_while_its_file_is_read_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of such a process is empty."""
    monkeypatch.setattr(process_tree, "_read", lambda _path: b"")
    assert process_tree.ProcessTable().usage_below(1)[0] == 0
    assert not process_tree.runs_since(1, 1)
    assert not process_tree.is_stopped(1)
