"""`--check`: what this host is like and what it lacks, before it joins. It makes the spool, and no more."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import pwd
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable, Sequence

from agent import company, containers, ownership, tree
from agent.gpus import Gpus, UnknownGpus
from agent.host import Host
from wire.policy import USUAL, JobPolicy
from wire.text import counted, memory

OK, NOTE, FAILED = "ok", "note", "failed"
LITTLE_MIB, TOO_LITTLE_MIB = 5 * 1024, 100
_SHARED = {"nfs", "nfs4", "cifs", "smb3", "lustre", "fuse.sshfs", "ceph", "gpfs", "beegfs"}


@dataclass(frozen=True)
class Check:
    """One line: `verdict` is ok, note (works, but know it) or failed (`remedy` first)."""

    name: str
    verdict: str
    found: str
    remedy: str = ""


def report(
    spool: Path,
    host: Host,
    find_gpus: Callable[[], Gpus],
    run_as_self: bool,
    policy: JobPolicy = USUAL,
    shared: Sequence[str] = (),
    cluster: str = "",
) -> str:
    """Everything as JSON, with the host's clock."""
    checks = [
        _python(),
        _who(run_as_self),
        *_spool(spool, cluster),
        *_company(spool),
        Check("CPUs", OK, f"{host.cpus} CPUs, {memory(host.memory_mib)}"),
        _numa(host),
        *_gpus(find_gpus),
        _cgroups(),
        _containers(policy),
        *map(_shared, shared),
    ]
    told = [asdict(check) for check in checks]
    return json.dumps({"now": time.time(), "boot_id": tree.boot_id(), "checks": told})


def _python() -> Check:
    return Check("Python", OK, f"{platform.python_version()} ({sys.executable})")


def _who(run_as_self: bool) -> Check:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    if uid == 0 and not run_as_self:
        return Check("user", OK, "root: jobs run as whoever submitted them")
    remedy = "" if run_as_self else "Log in as root to run jobs as whoever submitted them."
    return Check("user", OK if run_as_self else NOTE, f"{name}: all jobs run as {name}", remedy)


def _spool(spool: Path, cluster: str) -> list[Check]:
    held, remedy = False, "Name a directory of ours on a local disk with --spool."
    try:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(spool / "lock", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                held = True
        free = shutil.disk_usage(spool).free // (1024 * 1024)
    except OSError as error:
        why = f"{error.filename or spool}: {error.strerror}"
        return [Check("spool", FAILED, why, remedy)]
    whose = ownership.other(spool, cluster)
    if whose and (held or any((spool / "attempts").glob("*"))):
        return [Check("spool", FAILED, ownership.complaint(spool, whose), remedy)]
    kind = _file_system(spool)
    found = [Check("spool", OK, f"{spool} ({kind})")]
    if kind in _SHARED:
        remedy = "A local disk is faster and safer: name one with --spool."
        found = [Check("spool", NOTE, f"{spool} is on a network file system ({kind})", remedy)]
    verdict = FAILED if free < TOO_LITTLE_MIB else NOTE if free < LITTLE_MIB else OK
    remedy = "" if verdict == OK else "Logs of jobs go there: make room, or name another disk with --spool."
    return [*found, Check("disk", verdict, f"{memory(free)} free", remedy)]


def _company(spool: Path) -> list[Check]:
    """Nothing keeps two agents from one host, and both count all of it."""
    found = company.others(spool)
    if not found:
        return []
    told = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    remedy = "Only one may count its CPUs and GPUs: remove the other, or give each its part (--cpus, --gpus)."
    return [Check("company", NOTE, f"Corral is on this host already: {told}", remedy)]


def _file_system(path: Path) -> str:
    """The kind of file system a path is on: the longest mount point above it."""
    best, kind = "", "unknown"
    real = os.path.realpath(path)
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return kind
    for line in lines:
        _, point, found, *_ = line.split(" ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _numa(host: Host) -> Check:
    if not host.numa:
        return Check("NUMA", NOTE, "not told by the kernel: jobs are not bound to the CPUs near their GPUs")
    return Check("NUMA", OK, counted(len(host.numa), "node"))


def _gpus(find_gpus: Callable[[], Gpus]) -> list[Check]:
    driver = _driver()
    try:
        facts = find_gpus().facts
    except UnknownGpus as error:
        remedy = "Does nvidia-smi work there? If it has no GPUs: --gpus none."
        return [Check("GPUs", FAILED, str(error), remedy)]
    models = sorted({gpu.model for gpu in facts})
    if facts:
        told = ", ".join(f"{sum(gpu.model == model for gpu in facts)} × {model}" for model in models)
        found = [Check("GPUs", OK, told)]
    elif driver:
        found = [Check("GPUs", NOTE, "none, though there is a driver", "Does nvidia-smi work there?")]
    else:
        found = [Check("GPUs", NOTE, "none: no NVML on this host", "Install NVIDIA's driver if it has GPUs.")]
    return [*found, Check("driver", OK, driver)] if driver else found


def _driver() -> str:
    try:
        return f"NVIDIA {Path('/sys/module/nvidia/version').read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        pass
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    return "NVIDIA's library is there, its version is not told"


def _cgroups() -> Check:
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        try:
            own = Path("/proc/self/cgroup").read_text(encoding="ascii").split("0::", 1)[1].split("\n")[0]
        except (OSError, IndexError):
            own = "/"
        if os.access(root / own.lstrip("/"), os.W_OK):
            return Check("cgroups", OK, "version 2, ours to use")
        return Check(
            "cgroups",
            NOTE,
            "version 2, not ours to use: jobs are ended by their process tree",
            "Log in as root.",
        )
    if root.is_dir() and os.access(root, os.W_OK):
        return Check("cgroups", OK, "version 1")
    return Check("cgroups", NOTE, "none for us: jobs are ended by their process tree")


def _containers(policy: JobPolicy) -> Check:
    found = containers.find(policy, devices=True)
    if found is None:
        return Check(
            "containers", NOTE, "none", "For jobs with an image: install podman, docker or apptainer."
        )
    return Check("containers", OK, str(found))


def _shared(marker: str) -> Check:
    """The controller has left a file in a directory of its own: is that directory the same here?"""
    folder = os.path.dirname(marker)
    try:
        os.stat(marker)
    except FileNotFoundError:
        if os.path.isdir(folder):
            remedy = "Mount the same file system there: jobs would not find what people see."
            return Check("shared", NOTE, f"{folder} is another directory than the controller's", remedy)
        remedy = f"Mount {folder} as on the controller's machine: jobs that name paths in it fail here."
        return Check("shared", NOTE, f"{folder} is not there", remedy)
    except OSError as error:
        return Check("shared", NOTE, f"{folder}: {error.strerror}", "Let the user of the agent look into it.")
    return Check("shared", OK, f"{folder} ({_file_system(Path(folder))}) is the controller's")
