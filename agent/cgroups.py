"""Which control groups this host lets us use: v2 where it is delegated to us, v1 controllers, or none."""

from __future__ import annotations

import os
from binascii import crc32
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.group import Part, put
from wire.frames import Start

WANTED = ("cpu", "memory", "pids")
_FREEZER = "freezer"
_PERIOD_US = 100_000


@dataclass
class Cgroups:
    """Where groups of attempts are made, by controller; `whole` is for v2, where one group has them all."""

    whole: str = ""
    parents: dict[str, str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    limited: tuple[str, ...] = ()
    kills: bool = False
    why: str = ""

    def parts(self, key: str, order: Start | None, max_processes: int) -> list[Part]:
        """The groups of one attempt; without an order only to find and end who is in them."""
        settings = (
            {name: [] for name in self.parents} if order is None else self._settings(order, max_processes)
        )
        if self.whole:
            every = [each for name in self.limited for each in settings.get(name, [])]
            return [(f"{self.whole}/{key}", self.homes[""], every)]
        return [
            (f"{parent}/{key}", self.homes[name], settings.get(name, []))
            for name, parent in self.parents.items()
        ]

    def _settings(self, order: Start, max_processes: int) -> dict[str, list[tuple[str, str]]]:
        most_cpu, most_memory = order.most_cpu_milli, order.most_memory_mib
        quota = None if most_cpu is None else str(max(1_000, most_cpu * _PERIOD_US // 1_000))
        memory = None if most_memory is None else str(most_memory << 20)
        processes = ("pids.max", str(max_processes))
        # Where all want CPU time at once it is shared by what was asked for; where memory runs short as much
        # is left alone. Who asked for nothing in particular gets what others leave.
        asked = "0" if order.best_effort else str(order.memory_mib << 20)
        if self.whole:
            weight = "1" if order.best_effort else str(min(10_000, max(1, order.cpu_milli // 10)))
            return {
                "cpu": [("cpu.weight", weight), ("cpu.max", f"{quota or 'max'} {_PERIOD_US}")],
                "memory": [("memory.max", memory or "max"), ("memory.low", asked), ("memory.oom.group", "1")],
                "pids": [processes],
            }
        shares = str(shares_of(order))
        return {
            "cpu": [
                ("cpu.shares", shares),
                ("cpu.cfs_period_us", str(_PERIOD_US)),
                ("cpu.cfs_quota_us", quota or "-1"),
            ],
            "memory": [("memory.limit_in_bytes", memory or "-1"), ("memory.soft_limit_in_bytes", asked)],
            "pids": [processes],
        }

    def tidy(self) -> None:
        """Take away what holds no attempt."""
        for place in [self.whole] if self.whole else self.parents.values():
            with suppress(OSError):
                os.rmdir(place)

    def describe(self) -> str:
        """What holds jobs to what they asked for, in words for people."""
        if not self.limited:
            return f"none: {self.why}"
        return f"{', '.join(self.limited)} by cgroup {'v2' if self.whole else 'v1'}"

    def describe_end(self) -> str:
        """How the end of a job is made sure."""
        return f"{'the whole group' if self.kills else 'process tree'}, and no process left"


def shares_of(order: Start) -> int:
    """Its weight among those who want CPU time at once, as v1 and container runtimes count: 1024 is a CPU."""
    return 2 if order.best_effort else min(262_144, max(2, order.cpu_milli * 1_024 // 1_000))


def find(mode: str, tag: str, proc: Path = Path("/proc")) -> Cgroups:
    """What can be used, made ready; `tag` keeps the groups of several agents on a host apart."""
    if mode == "none":
        return Cgroups(why='[jobs] limits is "none"')
    mounts, own = _mounts(proc), _own(proc)
    if "" in mounts:
        found = _take_v2(mounts[""], own.get("", "/"), tag)
        if found is not None:
            return found
    return _take_v1(mounts, own, tag)


def tag_of(node: str, spool: Path) -> str:
    """A name for this agent's groups that the next agent on the same spool has, too."""
    return f"{node}-{crc32(os.fsencode(spool)):08x}"


def _mounts(proc: Path) -> dict[str, str]:
    """Mount points by controller; "" is v2."""
    found: dict[str, str] = {}
    for line in (proc / "self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            found.setdefault("", place)
        elif kind == "cgroup":
            for name in set(options.split(",")) & {*WANTED, _FREEZER}:
                found.setdefault(name, place)
    return found


def _own(proc: Path) -> dict[str, str]:
    """Our own group by controller; "" is v2."""
    found = {}
    for line in (proc / "self/cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path.rstrip("/")
    return found


def _take_v2(mount: str, own: str, tag: str) -> Cgroups | None:
    """All of it from v2: at the top as root, as container engines do, else in a group delegated to us."""
    for base in dict.fromkeys([mount, mount + own] if os.geteuid() == 0 else [mount + own]):
        known = _words(f"{base}/cgroup.controllers")
        if "memory" not in known or not os.access(base, os.W_OK):
            continue
        home = mount + own
        limited = tuple(name for name in WANTED if name in known)
        try:
            if base != mount:
                home = _step_aside(base)
            _enable(base, limited)
            place = _folder(base, "corral", tag, enable=limited)
            for above in (f"{base}/corral", place):
                # What protects an attempt's memory counts only as far as all groups above it are protected.
                with suppress(OSError):
                    put(f"{above}/memory.low", "max")
            return Cgroups(place, {"": place}, {"": home}, limited, os.path.exists(f"{place}/cgroup.kill"))
        except OSError:
            if home != mount + own:
                with suppress(OSError):
                    Path(base, "cgroup.procs").write_text("0")
                    os.rmdir(home)
    return None


def _step_aside(base: str) -> str:
    """A group that hands on controllers may hold no processes itself."""
    home = f"{base}/corral-agent"
    os.makedirs(home, exist_ok=True)
    Path(home, "cgroup.procs").write_text("0", encoding="ascii")
    return home


def _enable(folder: str, names: tuple[str, ...]) -> None:
    missing = set(names) - set(_words(f"{folder}/cgroup.subtree_control"))
    if missing:
        text = " ".join(f"+{name}" for name in sorted(missing))
        Path(folder, "cgroup.subtree_control").write_text(text, encoding="ascii")


def _take_v1(mounts: dict[str, str], own: dict[str, str], tag: str) -> Cgroups:
    """Each controller by itself; whole groups are ended by the freezer, or by a bare v2 beside them."""
    found, why = Cgroups(), "this host has no control groups"
    for name in (*WANTED, _FREEZER if _FREEZER in mounts else ""):
        if name not in mounts:
            continue
        base = mounts[name] + own.get(name, "")
        try:
            place = _folder(base, "corral", tag)
        except OSError as error:
            why = f"{base}/corral cannot be made: {error.strerror}"
            continue
        found.parents[name], found.homes[name] = place, base
    found.limited = tuple(name for name in WANTED if name in found.parents)
    found.kills = _FREEZER in found.parents or os.path.exists(f"{found.parents.get('', '')}/cgroup.kill")
    found.why = why
    return found


def _folder(base: str, *names: str, enable: tuple[str, ...] = ()) -> str:
    for name in names:
        base = f"{base}/{name}"
        os.makedirs(base, exist_ok=True)
        with suppress(OSError):  # a user's container runtime looks into the groups that it is in
            Path(base).chmod(0o755)
        if enable:
            _enable(base, enable)
    return base


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").split()
    except OSError:
        return []
