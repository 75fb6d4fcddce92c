"""Finds the cgroups that this agent may use: a v2 cgroup if possible, or v1 controllers, or none."""

from __future__ import annotations

import os
from binascii import crc32
from contextlib import suppress
from pathlib import Path

from agent.isolation.attempt_cgroup import write_setting
from agent.isolation.cgroup_limits import HostCgroups

CONTROLLERS = ("cpu", "memory", "pids")
_FREEZER = "freezer"


def detect(mode: str, tag: str, proc: Path = Path("/proc")) -> HostCgroups:
    """Find the cgroups that this agent may use, and create the parent of the attempts' cgroups. If `mode` is
    "none", jobs get no cgroups. `tag` distinguishes the agents of one host.
    """
    if mode == "none":
        return HostCgroups(why='[jobs] limits is "none"')
    mounts, own = _mounts(proc), _own(proc)
    if "" in mounts:
        found = _take_v2(mounts[""], own.get("", "/"), tag)
        if found is not None:
            return found
    return _take_v1(mounts, own, tag)


def writable_v1(proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Return the v1 controllers with which this process could limit jobs. No cgroup is created."""
    mounts, own = _mounts(proc), _own(proc)
    places = {name: mounts[name] + own.get(name, "") for name in CONTROLLERS if name in mounts}
    return tuple(name for name, place in places.items() if os.access(place, os.W_OK))


def cgroup_tag(node: str, spool: Path) -> str:
    """Return the tag, a text that is in the names of all cgroups of this agent. All agents of this node and
    spool have the same tag, so that a new agent finds the cgroups of an earlier agent.
    """
    return f"{node}-{crc32(os.fsencode(spool)):08x}"


def _mounts(proc: Path) -> dict[str, str]:
    """Return a dict from cgroup v1 controller to the mount point of its hierarchy. The entry "" is the mount
    point of cgroup v2.
    """
    found: dict[str, str] = {}
    for line in (proc / "self/mounts").read_text(encoding="utf-8").splitlines():
        _, parent, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            found.setdefault("", parent)
        elif kind == "cgroup":
            for name in set(options.split(",")) & {*CONTROLLERS, _FREEZER}:
                found.setdefault(name, parent)
    return found


def _own(proc: Path) -> dict[str, str]:
    """Return a dict from cgroup v1 controller to the path of the agent's own cgroup in its hierarchy. The
    entry "" is the path of the agent's v2 cgroup.
    """
    found = {}
    for line in (proc / "self/cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path.rstrip("/")
    return found


def _take_v2(mount: str, own: str, tag: str) -> HostCgroups | None:
    """Create the parent of the attempts' cgroups in the v2 hierarchy at `mount`. If possible, an agent that
    runs as root creates the parent in the root cgroup. In any other case, the parent is in `own`, the agent's
    own cgroup, which systemd must have delegated. Return None if v2 cannot be used.
    """
    for base in dict.fromkeys([mount, mount + own] if os.geteuid() == 0 else [mount + own]):
        known = _words(f"{base}/cgroup.controllers")
        if "memory" not in known or not os.access(base, os.W_OK):
            continue
        own_directory = mount + own
        limited = tuple(name for name in CONTROLLERS if name in known)
        try:
            if base != mount:
                own_directory = _move_agent_down(base)
            _enable(base, limited)
            parent = _make_parent(base, "corral", tag, enable=limited)
            for above in (f"{base}/corral", parent):
                # Set memory.low of the parent cgroups to the maximum, because a lower value would also limit
                # the memory that memory.low of the attempt's cgroup protects.
                with suppress(OSError):
                    write_setting(f"{above}/memory.low", "max")
            return HostCgroups(
                parent, {"": parent}, {"": own_directory}, limited, os.path.exists(f"{parent}/cgroup.kill")
            )
        except OSError:
            if own_directory != mount + own:
                with suppress(OSError):
                    Path(base, "cgroup.procs").write_text("0")
                    os.rmdir(own_directory)
    return None


def _move_agent_down(base: str) -> str:
    """Move the agent into a child cgroup of `base`, and return the path of the child. The kernel enables no
    controllers for the children of a cgroup that has processes.
    """
    own_directory = f"{base}/corral-agent"
    os.makedirs(own_directory, exist_ok=True)
    Path(own_directory, "cgroup.procs").write_text("0", encoding="ascii")
    return own_directory


def _enable(directory: str, names: tuple[str, ...]) -> None:
    missing = set(names) - set(_words(f"{directory}/cgroup.subtree_control"))
    if missing:
        text = " ".join(f"+{name}" for name in sorted(missing))
        Path(directory, "cgroup.subtree_control").write_text(text, encoding="ascii")


def _take_v1(mounts: dict[str, str], own: dict[str, str], tag: str) -> HostCgroups:
    """Create one parent of the attempts' cgroups in the hierarchy of each v1 controller that is available.
    Also create a parent with the freezer controller, with which all processes of an attempt can be killed. On
    a host without this controller, use a v2 cgroup without controllers instead.
    """
    found, why = HostCgroups(), ""
    for name in (*CONTROLLERS, _FREEZER if _FREEZER in mounts else ""):
        if name not in mounts:
            continue
        base = mounts[name] + own.get(name, "")
        try:
            parent = _make_parent(base, "corral", tag)
        except OSError as error:
            why = f"{base}/corral cannot be made: {error.strerror}"
            continue
        found.parents[name], found.own[name] = parent, base
    found.limited = tuple(name for name in CONTROLLERS if name in found.parents)
    found.kills = _FREEZER in found.parents or os.path.exists(f"{found.parents.get('', '')}/cgroup.kill")
    if not found.limited:
        unavailable = f"no cgroup controller ({', '.join(CONTROLLERS)}) is available to this agent"
        found.why = why or (unavailable if found.parents else "this host has no control groups")
    return found


def _make_parent(base: str, *names: str, enable: tuple[str, ...] = ()) -> str:
    for name in names:
        base = f"{base}/{name}"
        os.makedirs(base, exist_ok=True)
        with suppress(OSError):
            # Make the cgroup readable for all users, because a container runtime that runs as the job's
            # user must read its own cgroup.
            Path(base).chmod(0o755)
        if enable:
            _enable(base, enable)
    return base


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").split()
    except OSError:
        return []
