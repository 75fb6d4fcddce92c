"""Other agents on a host are found by their command lines, as far as they are visible."""

from __future__ import annotations

from pathlib import Path

from agent.host.other_agents import describe_other_agents

FROZEN = f"agents/{'0123456789abcdef' * 4}/corral-agent"
FILE = f"agents/agent-{'0123456789' * 2}.pyz"


def started(proc: Path, pid: int, *words: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes("\0".join(words).encode() + b"\0")


def test_other_agents_are_found_among_processes(tmp_path: Path) -> None:
    proc, home = tmp_path / "proc", tmp_path / "my home" / ".corral"
    started(proc, 11, "python3", "-I", "-S", f"{home}/{FILE}", "-")
    started(proc, 12, f"{tmp_path}/disk/gpu09/{FROZEN}", "-")
    started(proc, 16, "python3", "-I", "-S", f"{home}/{FILE}", "-")  # only looks, as we do
    started(proc, 13, "ls", f"{home}/{FILE}")
    started(proc, 14, "python3", "train.py", "-")
    for number, name in ((11, "gpu01"), (15, "gpu02")):
        (home / "nodes" / name).mkdir(parents=True)
        (home / "nodes" / name / "lock").write_text(str(number))
    (tmp_path / "disk" / "gpu09").mkdir(parents=True)
    (tmp_path / "disk" / "gpu09" / "lock").write_text("12")
    (proc / "uptime").write_text("1.0")
    user = tmp_path.owner()
    assert describe_other_agents(home / "nodes" / "gpu02", proc) == [
        f"node gpu01 (pid 11 of {user})",
        f"node gpu09 (pid 12 of {user})",
    ]
    assert describe_other_agents(home / "nodes" / "gpu01", proc) == [f"node gpu09 (pid 12 of {user})"]
