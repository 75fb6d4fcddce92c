"""Other agents on this machine: of another cluster, or of the same host under another name."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from typing import Iterator

_AGENT = re.compile(rb"(.*)/agents/agent-[0-9a-f]{20}\.pyz")


def others(own_spool: Path, proc: Path = Path("/proc")) -> list[str]:
    """One by one in words for people; whoever uses our spool is the one whose place we take."""
    told = []
    try:
        own = _holder(own_spool)
    except PermissionError:  # told elsewhere
        own = 0
    for pid, uid, home in sorted(_agents(proc)):
        name = _name(home, pid)
        if name and pid != own:
            told.append(f"{name} (pid {pid} of {_user(uid)})")
    return told


def _agents(proc: Path) -> Iterator[tuple[int, int, Path]]:
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            found = next(filter(None, map(_AGENT.fullmatch, words)), None)
            if found and b"-" in words and int(folder.name) != os.getpid():
                yield int(folder.name), folder.stat().st_uid, Path(os.fsdecode(found[1]))
        except OSError:
            continue  # it ended meanwhile


def _name(home: Path, pid: int) -> str:
    """Which node it is, as far as we may look; nothing for one that only looks at the host, as we do."""
    try:
        found = [f"node {spool.name}" for spool in _spools(home) if _holder(spool) == pid]
    except PermissionError:
        return "an agent"
    return found[0] if found else ""


def _spools(home: Path) -> list[Path]:
    """A spool that was named has the agent's file in itself."""
    try:
        return [home, *(home / "nodes").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return [home]


def _holder(spool: Path) -> int:
    """The agent that uses a spool; raises PermissionError if that is not ours to know."""
    try:
        return int((spool / "lock").read_text(encoding="ascii") or 0)
    except PermissionError:
        raise
    except (OSError, ValueError):
        return 0


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
