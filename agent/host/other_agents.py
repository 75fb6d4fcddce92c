"""Finds other agents on this host. Two agents on one host are a mistake, because each agent offers all CPUs
and GPUs of the host, possibly to different clusters.
"""

from __future__ import annotations

import os
import pwd
import re
from itertools import islice
from pathlib import Path
from typing import Iterator

_AGENT = re.compile(rb"(.*)/agents/(?:agent-[0-9a-f]{20}\.pyz|[0-9a-f]{64}/corral-agent)")
MOST_SPOOLS = 100
"""The most spools below one agent directory, such as ~/.corral, that are checked."""


def describe_other_agents(own_spool: Path, proc: Path = Path("/proc")) -> list[str]:
    """Return a description of each other agent on this host. An agent that uses `own_spool` is left out,
    because the new agent, which also uses `own_spool`, will replace it.
    """
    descriptions = []
    try:
        own = _holder(own_spool)
    # Ignore the error here, because the preflight check of the spool reports the same error.
    except PermissionError:
        own = 0
    for pid, uid, home in sorted(_agents(proc)):
        name = _name(home, pid)
        if name and pid != own:
            descriptions.append(f"{name} (pid {pid} of {_user(uid)})")
    return descriptions


def _agents(proc: Path) -> Iterator[tuple[int, int, Path]]:
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            found = next(filter(None, map(_AGENT.fullmatch, words)), None)
            if found and b"-" in words and int(folder.name) != os.getpid():
                yield int(folder.name), folder.stat().st_uid, Path(os.fsdecode(found[1]))
        except OSError:
            continue  # Skip a process that has ended.


def _name(home: Path, pid: int) -> str:
    """Return a text that names the node of the agent with this pid, such as "node gpu01". If the agent's
    spools cannot be read, return "an agent". If the agent has no spool, for instance during a preflight,
    return an empty text.
    """
    try:
        found = [f"node {spool.name}" for spool in _spools(home) if _holder(spool) == pid]
    except PermissionError:
        return "an agent"
    return found[0] if found else ""


def _spools(home: Path) -> list[Path]:
    """Return the directories that may be the spool of an agent: the agent's directory `home`, and the
    directories in `home`/nodes.
    """
    try:
        return [home, *islice((home / "nodes").iterdir(), MOST_SPOOLS)]
    except (FileNotFoundError, NotADirectoryError):
        return [home]


def _holder(spool: Path) -> int:
    """Return the pid of the agent that uses a spool; 0 if no agent uses it. Raise PermissionError if the
    spool cannot be read.
    """
    try:
        # Do not follow symbolic links and do not block: any user can start a process that looks like an
        # agent, and so can choose this path.
        lock = os.open(spool / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return int(os.pread(lock, 20, 0) or 0)
        finally:
            os.close(lock)
    except PermissionError:
        raise
    except (OSError, ValueError):
        return 0


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
