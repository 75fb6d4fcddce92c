"""The spool directory: what this node knows of its attempts, written before anybody is told.

    lock                 held by the one agent that uses this spool
    cluster              whose it is, see ownership.py
    hints                a FIFO on which supervisors say what they just recorded
    attempts/42.1/       record (see record.py), stdout, stderr, stop, go
    settled/42.1/        the same, once the controller has the outcome on record; kept for its logs
    unreadable/          records that are not what was written, kept for whoever repairs them

Every change is one rename or one write, so it is there or it is not. Nothing is synced: what survives is
the death of processes; a host that reboots has lost its jobs anyway, and says so by its boot id.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent import lease, ownership, record
from agent.record import Unreadable
from wire.codec import Malformed
from wire.frames import AttemptStatus, Checkpoint, Start, Stop, Usage, pack, unpack

Key = tuple[int, int]
REPLACE_S = 0.5
"""So long an agent that is about to leave may take before the one that replaces it ends it."""


class SpoolUnusable(Exception):
    """The spool directory cannot be used; says in a sentence why and what to do."""


@dataclass(frozen=True)
class Found:
    """An attempt as the spool has it; `unreadable` says what is wrong with its record."""

    status: AttemptStatus
    order: Start | None = None
    stop: Stop | None = None
    unreadable: str = ""


def name_of(key: Key) -> str:
    """42.1: job and attempt."""
    return f"{key[0]}.{key[1]}"


def key_of(name: str) -> Key | None:
    """The key behind a name, None if it is not one."""
    job, _, attempt = name.partition(".")
    good = job.isascii() and job.isdigit() and attempt.isascii() and attempt.isdigit()
    return (int(job), int(attempt)) if good and name_of((int(job), int(attempt))) == name else None


class Spool:
    """All reading and writing of the spool directory."""

    def __init__(self, root: Path, boot_id: str) -> None:
        self.root = root.absolute()
        self.boot_id = boot_id
        self.fifo = self.root / "hints"
        self._attempts = f"{self.root}/attempts"
        self._settled = f"{self.root}/settled"
        self.hints = -1
        self._lease = -1
        self._heard = float("-inf")
        self._lock = -1

    def open(self, patience_s: float = 5.0, *, replace: bool = False, cluster: str = "") -> None:
        """Make the directories and become their only user, at the cost of another agent if need be."""
        try:
            for folder in (self.root, Path(self._attempts), Path(self._settled), self.root / "unreadable"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._become_only_user(patience_s, replace, cluster)
            self._belong_to(cluster)
            if not self.fifo.is_fifo():
                self.fifo.unlink(missing_ok=True)
                os.mkfifo(self.fifo, 0o600)
            self._lease = os.open(self.root / lease.NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for leftover in Path(self._attempts).glob(".*"):
                if key_of(leftover.name[1:]) is not None:  # anything else is not ours
                    shutil.rmtree(leftover)
            self.hints = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            where = error.filename or self.root
            raise SpoolUnusable(
                f"the spool directory {self.root} cannot be used: {where}: {error.strerror}. "
                "Attempts are recorded there before they run; choose a writable local directory with --spool."
            ) from None

    def knows(self, key: Key) -> bool:
        """Is there anything of this attempt?"""
        return any(os.path.lexists(f"{each}/{name_of(key)}") for each in (self._attempts, self._settled))

    def _become_only_user(self, patience_s: float, replace: bool, cluster: str) -> None:
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                whose = ownership.other(self.root, cluster)
                if whose:
                    raise SpoolUnusable(ownership.complaint(self.root, whose)) from None
                if replace and time.monotonic() > deadline - patience_s + REPLACE_S:
                    self._evict()
                if time.monotonic() > deadline:
                    raise SpoolUnusable(
                        f"the spool directory {self.root} is used by another agent "
                        f"(pid {self._owner() or 'unknown'}). "
                        "End that one, or give this one its own directory with --spool."
                    ) from None
                time.sleep(0.05)
        os.pwrite(self._lock, b"%-20d" % os.getpid(), 0)  # not shortened first: the disk may be full

    def _owner(self) -> str:
        return os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()

    def _belong_to(self, cluster: str) -> None:
        """What another cluster left is only put aside if nothing of it can run any more."""
        whose = ownership.other(self.root, cluster)
        if whose:
            if self._keys(self._attempts):
                raise SpoolUnusable(ownership.complaint(self.root, whose))
            os.rename(self._settled, f"{self._settled}.{whose[:8]}.{time.time_ns()}")
            os.mkdir(self._settled, 0o700)
        if cluster:
            ownership.keep(self.root, cluster)

    def _evict(self) -> None:
        """End the agent that holds the lock: the line behind it is dead, and it may be stopped itself."""
        text = self._owner()
        if not text.isdigit():
            return
        ours = os.fstat(self._lock)
        with suppress(OSError):  # it is gone, or not ours to look at
            for each in os.scandir(f"/proc/{text}/fd"):
                if os.path.samestat(os.stat(each.path), ours):
                    os.kill(int(text), signal.SIGKILL)
                    return

    # --- writing ---

    def renew(self, heard: float) -> None:
        """Leases count from this moment of our clock, unless from a later one already."""
        if heard > self._heard:
            self._heard = heard
            lease.renew(self._lease, self.boot_id, heard)

    def keep(self, key: Key, order: Start | None, *facts: bytes) -> None:
        """Write an order down, with room for what will become of it; raises OSError if that fails."""
        name = name_of(key)
        fresh = f"{self._attempts}/.{name}"
        text = "null" if order is None else pack(order).decode("utf-8", "surrogatepass").rstrip()
        try:
            os.mkdir(fresh, 0o700)
            _write(f"{fresh}/record", record.line("order", self.boot_id, text) + b"".join(facts))
            os.rename(fresh, self.place(key))
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def conclude(self, key: Key, line: bytes) -> bool:
        """End an attempt that no supervisor has taken up; False if one has."""
        try:
            descriptor = os.open(f"{self.place(key)}/record", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if not record.hold(descriptor):
                return False
            written = record.written(descriptor)
            free = len(record.facts(written)) == 1
            if free:
                os.pwrite(descriptor, line, len(written))
            return free
        except (OSError, Unreadable):
            return False
        finally:
            os.close(descriptor)

    def keep_stop(self, stop: Stop) -> None:
        """Leave the order to stop where the supervisor reads it."""
        place = self.place((stop.job, stop.attempt))
        descriptor = os.open(f"{place}/.stop", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{stop.grace_s} {stop.checkpoint_s} {stop.why}".encode("utf-8", "replace"))
        finally:
            os.close(descriptor)
        os.rename(f"{place}/.stop", f"{place}/stop")

    def keep_go(self, key: Key) -> None:
        """Leave word that the gang may start."""
        os.close(os.open(f"{self.place(key)}/go", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def settle(self, key: Key) -> None:
        """The controller has the outcome: keep the logs, report no more."""
        name = name_of(key)
        os.rename(f"{self._attempts}/{name}", f"{self._settled}/{name}")

    def forget(self, key: Key) -> None:
        """Delete a settled attempt with its logs."""
        place = f"{self._settled}/{name_of(key)}"
        try:
            for name in os.listdir(place):
                os.unlink(f"{place}/{name}")
            os.rmdir(place)
        except OSError:
            shutil.rmtree(place, ignore_errors=True)

    def set_aside(self, key: Key, what: str) -> Found:
        """Move an unreadable record out of the way and put that of a lost supervisor in its place."""
        kept = self.root / "unreadable" / f"{name_of(key)}.{time.time_ns()}"
        place = self.place(key)
        why = f"supervisor_lost: its record in the spool cannot be trusted ({what})"
        for found in (f"{place}/record", place):
            if os.path.lexists(found) and not (found == place and os.path.isdir(place)):
                os.rename(found, kept)
                why += f"; it is kept as {kept}"
        os.makedirs(place, 0o700, exist_ok=True)
        _write(
            f"{place}/.record", record.line("order", self.boot_id, "null") + record.line("claimed", 0, why)
        )
        os.rename(f"{place}/.record", f"{place}/record")
        return self.read(key)

    # --- reading ---

    def place(self, key: Key) -> str:
        """The directory of an attempt that is not settled."""
        return f"{self._attempts}/{name_of(key)}"

    def log(self, key: Key, stream: str) -> int:
        """Open a log for reading; raises FileNotFoundError while there is none."""
        # A job that runs as we do may have put a pipe in its place, and to open that would be to wait for it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(f"{self.place(key)}/{stream}", flags)
        except FileNotFoundError:
            return os.open(f"{self._settled}/{name_of(key)}/{stream}", flags)

    def holder(self, key: Key) -> int | None:
        """The pid of the living supervisor of an attempt."""
        return record.holder(f"{self.place(key)}/record")

    def unsettled(self) -> list[Found]:
        """Every attempt whose outcome the controller may not have, oldest first."""
        return [self.read(key) for key in sorted(self._keys(self._attempts))]

    def settled(self) -> list[Found]:
        """Every attempt that is kept only for its logs, in the order in which they ended."""
        found = [self._read(key, f"{self._settled}/{name_of(key)}") for key in self._keys(self._settled)]
        found = [_over(each) if each.unreadable else each for each in found]
        return sorted(found, key=lambda each: (each.status.ended_at or 0.0, each.status.job))

    def _keys(self, folder: str) -> list[Key]:
        return [key for key in map(key_of, os.listdir(folder)) if key is not None]

    def read(self, key: Key) -> Found:
        """One attempt that is not settled."""
        return self._read(key, self.place(key))

    def _read(self, key: Key, place: str) -> Found:
        bare = AttemptStatus(*key)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(f"{place}/record", flags)
            try:
                lines = record.facts(record.written(descriptor))
            finally:
                os.close(descriptor)
            order = _order(key, lines)
            status = bare
            for fact in lines[1:]:
                status = learn(status, fact)
        except (OSError, Unreadable) as error:
            return Found(bare, unreadable=getattr(error, "strerror", None) or str(error))
        return Found(status, order, _stop(key, place))


def _write(path: str, lines: bytes) -> None:
    """A record with room behind its first lines, all of it or an OSError."""
    data = lines + b" " * record.ROOM
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _over(found: Found) -> Found:
    """A settled attempt whose record is damaged: only its logs are of use, and it is over in any case."""
    return Found(replace(found.status, ended_at=0.0, why=f"its record cannot be read: {found.unreadable}"))


def _stop(key: Key, place: str) -> Stop | None:
    try:
        with open(f"{place}/stop", encoding="utf-8") as file:
            grace, saving, why = file.read().split(" ", 2)
        return Stop(*key, float(grace), why, float(saving))
    except (FileNotFoundError, ValueError):
        return None


def _order(key: Key, lines: list[list[str]]) -> Start | None:
    if not lines or lines[0][0] != "order" or len(lines[0]) != 3:
        raise Unreadable("line 1: not an order")
    text = lines[0][2]
    if text == "null":
        return None
    try:
        order = unpack(text.encode("utf-8", "surrogatepass"))
    except Malformed as error:
        raise Unreadable(f"line 1: {error}") from None
    if not isinstance(order, Start) or (order.job, order.attempt) != key:
        raise Unreadable("line 1: the order of another attempt")
    return order


def learn(status: AttemptStatus, fact: list[str]) -> AttemptStatus:
    """The status after one more fact."""
    try:
        if fact[0] == "ready":
            return replace(status, ready=True)
        if fact[0] == "started":
            _, pid, _, at = fact
            return replace(status, pid=int(pid), started_at=float(at))
        if fact[0] == "checkpoint":
            _, at, size, path = fact
            return replace(status, checkpoint=Checkpoint(path, int(size), float(at)))
        if fact[0] == "ended":
            _, at, code, number, cpu_s, rss_mib, why = fact
            return AttemptStatus(
                status.job,
                status.attempt,
                status.pid,
                status.started_at,
                float(at),
                None if code == "-" else int(code),
                None if number == "-" else int(number),
                why,
                Usage(float(cpu_s), int(rss_mib)),
                status.checkpoint,
                status.ready,
            )
    except ValueError:
        raise Unreadable(f"a fact that is none: {fact[0]}") from None
    return status
