"""Writes a report on whether this host can run jobs (`--check`), before the host is added as a node. The
preflight changes nothing on the host, except that it creates the spool.
"""

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
from dataclasses import asdict
from pathlib import Path
from typing import Callable, Sequence

from agent.gpus.interface import GpuSource, GpusUnknown
from agent.host import cluster_ownership, other_agents
from agent.host.facts import HostFacts
from agent.isolation import cgroup_detection, container_runtimes
from agent.processes import process_tree
from wire import trusted_paths
from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.cluster.mig import counted_models
from wire.dataclass import dataclass
from wire.text import counted, memory
from wire.trusted_paths import UntrustedPath

OK, NOTE, FAILED = "ok", "note", "failed"
LOW_DISK_MIB, MIN_DISK_MIB = 5 * 1024, 100
_SHARED = {"nfs", "nfs4", "cifs", "smb3", "lustre", "fuse.sshfs", "ceph", "gpfs", "beegfs"}


@dataclass(frozen=True)
class PreflightCheck:
    """The result of one check of this host, which is one line of the preflight report. `verdict` is ok, note
    (the host works, with a restriction) or failed.
    """

    name: str
    verdict: str
    found: str
    remedy: str = ""


def report(
    spool: Path,
    host: HostFacts,
    find_gpus: Callable[[], GpuSource],
    run_as_self: bool,
    policy: JobPolicy = DEFAULT_JOB_POLICY,
    shared: Sequence[str] = (),
    cluster: str = "",
) -> str:
    """Return the report of the preflight (the checks of this host) as JSON, with the time of the host's clock
    and the host's boot id. `shared` has the paths of marker files. The controller has written one marker file
    into each directory that this host must share with the controller.
    """
    checks = [
        _python(),
        _user(run_as_self),
        *_spool(spool, cluster),
        *_other_agents(spool),
        PreflightCheck("CPUs", OK, f"{host.cpus} CPUs, {memory(host.memory_mib)}"),
        _numa(host),
        *_gpus(find_gpus),
        _cgroups(),
        _containers(policy, find_gpus),
        *map(_shared, shared),
    ]
    shown = [asdict(check) for check in checks]
    return json.dumps({"now": time.time(), "boot_id": process_tree.boot_id(), "checks": shown})


def _python() -> PreflightCheck:
    return PreflightCheck("Python", OK, f"{platform.python_version()} ({sys.executable})")


def _user(run_as_self: bool) -> PreflightCheck:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    if uid == 0 and not run_as_self:
        return PreflightCheck("user", OK, "root: each job runs as the user that submitted the job")
    remedy = "" if run_as_self else "Log in as root to run each job as the user that submitted the job."
    return PreflightCheck("user", OK if run_as_self else NOTE, f"{name}: all jobs run as {name}", remedy)


def _spool(spool: Path, cluster: str) -> list[PreflightCheck]:
    held, remedy = False, "Name a writable directory on a local disk with --spool."
    try:
        os.close(trusted_paths.open_directory(str(spool), make=True))
        with open(spool / "lock", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                held = True
        free = shutil.disk_usage(spool).free // (1024 * 1024)
    except UntrustedPath as error:
        return [PreflightCheck("spool", FAILED, str(error), remedy)]
    except OSError as error:
        why = f"{error.filename or spool}: {error.strerror}"
        return [PreflightCheck("spool", FAILED, why, remedy)]
    other = cluster_ownership.other_cluster(spool, cluster)
    if other and (held or any((spool / "attempts").glob("*"))):
        return [PreflightCheck("spool", FAILED, cluster_ownership.other_cluster_error(spool, other), remedy)]
    kind = _file_system(spool)
    found = [PreflightCheck("spool", OK, f"{spool} ({kind})")]
    if kind in _SHARED:
        remedy = "A local disk is faster and safer: name one with --spool."
        found = [PreflightCheck("spool", NOTE, f"{spool} is on a network file system ({kind})", remedy)]
    verdict = FAILED if free < MIN_DISK_MIB else NOTE if free < LOW_DISK_MIB else OK
    remedy = "" if verdict == OK else "Logs of jobs go there: make room, or name another disk with --spool."
    return [*found, PreflightCheck("disk", verdict, f"{memory(free)} free", remedy)]


def _other_agents(spool: Path) -> list[PreflightCheck]:
    """Check for other agents on this host. If there are any, the verdict is NOTE and not FAILED, because each
    agent may offer only a part of the CPUs and GPUs. If there are none, return an empty list.
    """
    found = other_agents.describe_other_agents(spool)
    if not found:
        return []
    shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    remedy = "Remove the other agent, or give each agent a part of the CPUs and GPUs (--cpus, --gpus)."
    return [PreflightCheck("agents", NOTE, f"Corral is on this host already: {shown}", remedy)]


def _file_system(path: Path) -> str:
    """Return the type of the file system at this path. This is the type of the mount with the longest mount
    point that is a prefix of the path.
    """
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


def _numa(host: HostFacts) -> PreflightCheck:
    if not host.numa:
        return PreflightCheck(
            "NUMA", NOTE, "not reported by the kernel: jobs are not bound to the CPUs near their GPUs"
        )
    return PreflightCheck("NUMA", OK, counted(len(host.numa), "node"))


def _gpus(find_gpus: Callable[[], GpuSource]) -> list[PreflightCheck]:
    driver = _driver()
    try:
        facts = find_gpus().facts
    except GpusUnknown as error:
        remedy = "Does nvidia-smi work on that host? If it has no GPUs: --gpus none."
        return [PreflightCheck("GPUs", FAILED, str(error), remedy)]
    if facts:
        found = [PreflightCheck("GPUs", OK, counted_models((gpu.number, gpu.model) for gpu in facts))]
    elif driver:
        found = [
            PreflightCheck(
                "GPUs", NOTE, "none, although a driver is loaded", "Does nvidia-smi work on that host?"
            )
        ]
    else:
        found = [
            PreflightCheck(
                "GPUs", NOTE, "none: no NVML on this host", "Install NVIDIA's driver if it has GPUs."
            )
        ]
    return [*found, PreflightCheck("driver", OK, driver)] if driver else found


def _driver() -> str:
    try:
        return f"NVIDIA {Path('/sys/module/nvidia/version').read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        pass
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    return "NVIDIA's library, version unknown"


def _cgroups() -> PreflightCheck:
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        try:
            own = Path("/proc/self/cgroup").read_text(encoding="ascii").split("0::", 1)[1].split("\n")[0]
        except (OSError, IndexError):
            own = "/"
        if os.access(root / own.lstrip("/"), os.W_OK):
            return PreflightCheck("cgroups", OK, "version 2, writable")
        return PreflightCheck(
            "cgroups",
            NOTE,
            "version 2, not writable: jobs have no limits and are ended through their process tree",
            "Log in as root.",
        )
    usable = cgroup_detection.writable_v1()
    if set(usable) == set(cgroup_detection.CONTROLLERS):
        return PreflightCheck("cgroups", OK, "version 1")
    if usable:
        missing = ", ".join(sorted({*cgroup_detection.CONTROLLERS} - {*usable}))
        return PreflightCheck("cgroups", NOTE, f"version 1, without {missing}: not limited for jobs")
    remedy = "Mount /sys/fs/cgroup where sshd runs, and log in as root."
    return PreflightCheck(
        "cgroups",
        NOTE,
        "none that the agent may use: jobs have no limits and are ended through their process tree",
        remedy,
    )


def _containers(policy: JobPolicy, find_gpus: Callable[[], GpuSource]) -> PreflightCheck:
    try:
        gpus = find_gpus()
    except GpusUnknown:  # Ignore the error here, because the check of the GPUs reports the same error.
        uuids = []
    else:
        uuids = [gpu.uuid for gpu in gpus.facts] if gpus.real else []
    found = container_runtimes.find_runtime(policy, uuids)
    if found is None:
        return PreflightCheck(
            "containers", NOTE, "none", "For jobs with an image: install podman, docker or apptainer."
        )
    if found.gpu_problem:
        why, _, remedy = found.gpu_problem.partition(": ")
        return PreflightCheck(
            "containers",
            NOTE,
            f"{found}, but no GPUs for jobs with an image: {why}",
            f"{remedy}.".capitalize(),
        )
    return PreflightCheck("containers", OK, str(found))


def _shared(marker: str) -> PreflightCheck:
    """Check that a directory is shared with the controller. The controller has written the file `marker` into
    the directory. If this host does not have the file, the verdict is NOTE, because jobs that do not use the
    directory can run.
    """
    folder = os.path.dirname(marker)
    try:
        os.stat(marker)
    except FileNotFoundError:
        if os.path.isdir(folder):
            remedy = "Mount the same file system there: jobs would not find the files that users see."
            return PreflightCheck(
                "shared", NOTE, f"{folder} is not the same directory as on the controller", remedy
            )
        remedy = f"Mount {folder} as on the controller's machine: jobs that name paths in it fail here."
        return PreflightCheck("shared", NOTE, f"{folder} does not exist", remedy)
    except OSError as error:
        return PreflightCheck(
            "shared", NOTE, f"{folder}: {error.strerror}", "Give the agent's user the right to read it."
        )
    return PreflightCheck("shared", OK, f"{folder} ({_file_system(Path(folder))}) is the controller's")
