"""Finds jobs that another cluster left on this host, before a controller starts with an empty store.

If the store is empty although jobs run on this host, the state directory was lost, or a wrong directory is
configured. The store does not contain these jobs. The agents would end them, and new jobs would get the same
job ids. Therefore the controller refuses to start, unless the operator starts it with --new-cluster.

1. Find the configured spools (directories of agents) on this host with attempts of a controller with another
   store.
2. Read the environment of each process on this host, and find the processes of attempts in any configured
   spool.
3. If there is such a spool or process, refuse to start and list them. With --new-cluster, end the processes
   and rename the spools.
"""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controller.store.errors import StoreRefused
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

SHOWN = 5
PATIENCE_S = 10.0
_MARK = b"CORRAL_SPOOL="


@dataclass(frozen=True, slots=True)
class FormerProcess:
    """A process of a job that is not in the store."""

    pid: int
    attempt: str
    user: str

    def __str__(self) -> str:
        return f"job {self.attempt.partition('.')[0]} of {self.user} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class FormerCluster:
    """Job processes and spools of another cluster on this host."""

    processes: tuple[FormerProcess, ...]
    spools: tuple[Path, ...]

    def __bool__(self) -> bool:
        return bool(self.processes or self.spools)

    def refusal(self, store: str) -> StoreRefused:
        """Return the error with which the controller refuses to start. `store` is the location of the empty
        store."""
        found = [str(each) for each in self.processes[:SHOWN]]
        if len(self.processes) > SHOWN:
            found.append(f"{len(self.processes) - SHOWN} more processes")
        found += [f"attempts in {spool}" for spool in self.spools]
        return StoreRefused(
            f"{store} is empty, but another cluster has left jobs on this host: {', '.join(found)}",
            "If its state directory was lost, put it back, or: corral admin restore FILE --yes\n"
            "To begin a new cluster, end these processes and move these spools away: "
            "corral controller --new-cluster",
        )


def find(spools: Iterable[Path], store_id: str) -> FormerCluster:
    """Return the spools (directories of agents) of other clusters, and the processes of attempts in any of
    the configured `spools`. Processes whose environment the controller's user may not read are left out.
    `store_id` is the id of the empty store.
    """
    real = [Path(os.path.realpath(spool)) for spool in spools]
    foreign = [spool for spool in real if _is_foreign(spool, store_id)]
    return FormerCluster(tuple(_processes(real)), tuple(foreign))


def end_jobs(spools: Iterable[Path], store_id: str) -> list[str]:
    """Kill the processes and rename the spools that find() returns. Return one line of text about each of
    them.
    """
    spools, done = list(spools), []
    deadline = time.monotonic() + PATIENCE_S
    while (found := find(spools, store_id)).processes:
        for each in found.processes:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
                done.append(f"ended {each}")
        if time.monotonic() > deadline:
            raise StoreRefused(f"{found.processes[0]} does not end", "End it, then start again.")
        time.sleep(0.05)
    for spool in found.spools:
        aside = f"{spool}.former-{time.time_ns()}"
        os.rename(spool, aside)
        done.append(f"moved {spool} to {aside}")
    return done


def _is_foreign(spool: Path, store_id: str) -> bool:
    try:
        os.close(trusted_paths.open_directory(str(spool)))
        owner = (spool / "cluster").read_text(encoding="utf-8", errors="replace").partition("@")[0].strip()
        return bool(owner) and owner != store_id and any((spool / "attempts").iterdir())
    except (OSError, UntrustedPath):
        return False  # Skip a spool that another user can change, because the agent refuses to use it.


def _processes(spools: list[Path]) -> Iterator[FormerProcess]:
    beginnings = [os.fsencode(f"{spool}/attempts/") for spool in spools]
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            variables = Path("/proc", name, "environ").read_bytes().split(b"\0")
            uid = os.stat(f"/proc/{name}").st_uid
        except OSError:
            # Skip a process that has ended, or whose environment the controller's user may not read.
            continue
        for variable in variables:
            place = variable.removeprefix(_MARK) if variable.startswith(_MARK) else b""
            beginning = next((each for each in beginnings if place.startswith(each)), None)
            if beginning is not None:
                yield FormerProcess(int(name), os.fsdecode(place[len(beginning) :]), _user(uid))
                break


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
