"""Reads and writes the spool. In this directory the agent records each start, checkpoint and end of an
attempt before reporting it to the controller.

key                  the HMAC key that signs the marks of processes (process_marks.py)
    lock                 locked by the one agent that uses this spool; contains its pid
    cluster              the cluster that this spool belongs to (cluster_ownership.py)
    epoch, journal       highest epoch of a controller, newest journal entry (leader_epochs.py)
    hints                a FIFO through which supervisors send new facts to the agent
    lease                the time of the last contact with the controller (lease.py)
    attempts/42.1/       record (attempt_record.py), stdout, stderr, stop, go, tasks.sock (task_host.py)
    settled/42.1/        the same files after the controller has recorded the end; kept for the logs
    unreadable/          damaged records, kept for an operator

Every change is one rename or one write, so a crash leaves either the old or the new state. Writes are not
synced to disk: the spool must survive the death of processes, but a reboot ends the jobs in any case. The
boot id in each record shows whether the host has rebooted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.attempts import attempt_record, lease
from agent.attempts.attempt_record import UnreadableRecord
from agent.attempts.leader_epochs import LeaderEpochs
from agent.host import cluster_ownership
from agent.processes import process_marks
from wire import trusted_paths
from wire.agent.frames import pack, unpack
from wire.agent.orders import Start, Stop
from wire.agent.reports import AttemptStatus, Checkpoint, Usage
from wire.codec import Malformed
from wire.dataclass import dataclass
from wire.trusted_paths import UntrustedPath

AttemptKey = tuple[int, int]
EVICT_AFTER_S = 0.5
"""Seconds for which a new agent waits until an earlier agent of this spool exits. After this time the new
agent kills the earlier agent.
"""


class SpoolUnusable(Exception):
    """Raised if the spool directory cannot be used. The message has the reason and a remedy."""


@dataclass(frozen=True)
class SpooledAttempt:
    status: AttemptStatus
    order: Start | None = None
    stop: Stop | None = None
    damage: str = ""
    """The reason why the record cannot be read; empty if the record is intact."""


def format_key(key: AttemptKey) -> str:
    """Return the name of an attempt, such as 42.1 for attempt 1 of job 42."""
    return f"{key[0]}.{key[1]}"


def parse_key(name: str) -> AttemptKey | None:
    """Return (job, attempt number) for a name such as 42.1; None if the text is not such a name."""
    job, _, attempt = name.partition(".")
    good = job.isascii() and job.isdigit() and attempt.isascii() and attempt.isdigit()
    return (int(job), int(attempt)) if good and format_key((int(job), int(attempt))) == name else None


class Spool:
    def __init__(self, root: Path, boot_id: str) -> None:
        self.root = root.absolute()
        self.boot_id = boot_id
        self.fifo = self.root / "hints"
        self._attempts = f"{self.root}/attempts"
        self._settled = f"{self.root}/settled"
        self.hints = -1
        self._lease = -1
        self._contact_s = float("-inf")
        self._lock = -1
        self.epochs = LeaderEpochs(self.root)
        self.mark_key = ""
        """The HMAC key with which the processes of attempts are marked (process_marks.py)."""

    def open(
        self, patience_s: float = 5.0, *, replace: bool = False, cluster: str = "", epoch: int = 0
    ) -> None:
        """Create the directories and lock the spool for this agent. Raise SpoolUnusable if the spool cannot
        be used.

        If another agent has locked the spool, wait at most `patience_s` seconds for its exit. If `replace` is
        True, kill that agent after EVICT_AFTER_S seconds. If `epoch` is higher than that of the other agent's
        controller, kill the other agent at once, because its controller no longer leads. If `epoch` is lower
        than that of an earlier controller, raise SpoolUnusable.
        """
        try:
            for folder in (str(self.root), self._attempts, self._settled, f"{self.root}/unreadable"):
                os.close(trusted_paths.open_directory(folder, make=True))
            self._check_owners()
            self._lock_spool(patience_s, replace, cluster, epoch)
            self._claim_for(cluster)
            self._refuse_earlier(epoch)
            self.epochs.raise_to(epoch)
            self.mark_key = process_marks.load_key(str(self.root))
            if not self.fifo.is_fifo():
                self.fifo.unlink(missing_ok=True)
                os.mkfifo(self.fifo, 0o600)
            self._lease = os.open(self.root / lease.NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for leftover in Path(self._attempts).glob(".*"):
                if parse_key(leftover.name[1:]) is not None:
                    # Delete only directories named like `.42.1`, which an interrupted `record_order` leaves.
                    # Other names that begin with a dot are not made by an agent.
                    shutil.rmtree(leftover)
            self.hints = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except UntrustedPath as error:
            raise SpoolUnusable(f"the spool directory {self.root} is not safe: {error}") from None
        except OSError as error:
            where = error.filename or self.root
            raise SpoolUnusable(
                f"the spool directory {self.root} cannot be used: {where}: {error.strerror}. "
                "Attempts are recorded there before they run; choose a writable local directory with --spool."
            ) from None

    def _check_owners(self) -> None:
        """Raise UntrustedPath if an entry of the spool directory belongs neither to root nor to the agent's
        user, because its owner could change it.
        """
        with os.scandir(self.root) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_uid not in (0, os.geteuid()):
                    raise UntrustedPath(
                        f"{entry.path} belongs to uid {found.st_uid}, so that user may have changed its "
                        f"content. Check it and delete it (rm -r {entry.path}), or choose another spool."
                    )

    def has(self, key: AttemptKey) -> bool:
        return any(os.path.lexists(f"{each}/{format_key(key)}") for each in (self._attempts, self._settled))

    def _refuse_earlier(self, epoch: int) -> None:
        refusal = self.epochs.refusal(epoch)
        if refusal:
            raise SpoolUnusable(refusal)

    def _lock_spool(self, patience_s: float, replace: bool, cluster: str, epoch: int) -> None:
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                other = cluster_ownership.other_cluster(self.root, cluster)
                if other:
                    raise SpoolUnusable(cluster_ownership.other_cluster_error(self.root, other)) from None
                self._refuse_earlier(epoch)
                if epoch > self.epochs.highest():
                    self._evict()
                if replace and time.monotonic() > deadline - patience_s + EVICT_AFTER_S:
                    self._evict()
                if time.monotonic() > deadline:
                    raise SpoolUnusable(
                        f"the spool directory {self.root} is used by another agent "
                        f"(pid {self._owner() or 'unknown'}). "
                        "End that agent, or give this agent its own directory with --spool."
                    ) from None
                time.sleep(0.05)
        # Overwrite the pid in the lock file without truncating the file first, because the disk may be full.
        os.pwrite(self._lock, b"%-20d" % os.getpid(), 0)

    def _owner(self) -> str:
        return os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()

    def _claim_for(self, cluster: str) -> None:
        """Record in the spool that `cluster` uses the spool. If another cluster used the spool before, move
        the logs of that cluster's attempts to another directory. Raise SpoolUnusable if an attempt of that
        cluster is not settled.
        """
        other = cluster_ownership.other_cluster(self.root, cluster)
        if other:
            if self._keys(self._attempts):
                raise SpoolUnusable(cluster_ownership.other_cluster_error(self.root, other))
            os.rename(self._settled, f"{self._settled}.{other[:8]}.{time.time_ns()}")
            os.mkdir(self._settled, 0o700)
        if cluster:
            cluster_ownership.write_owner(self.root, cluster)

    def _evict(self) -> None:
        """Kill the earlier agent, which still locks the spool. It has lost its connection to the controller,
        but does not exit, for example because it hangs.
        """
        text = self._owner()
        if not text.isdigit():
            return
        lock_file = os.fstat(self._lock)
        # Ignore an OSError: the earlier agent has exited, or belongs to another user.
        with suppress(OSError):
            for each in os.scandir(f"/proc/{text}/fd"):
                if os.path.samestat(os.stat(each.path), lock_file):
                    os.kill(int(text), signal.SIGKILL)
                    return

    # --- writing orders, records and leases ---

    def renew_leases(self, contact_s: float) -> None:
        """Store `contact_s`, the time of the last contact with the controller in seconds since boot. All
        leases are counted from this time. If a later time is already stored, do nothing.
        """
        if contact_s > self._contact_s:
            self._contact_s = contact_s
            lease.write_renewal(self._lease, self.boot_id, contact_s)

    def record_order(self, key: AttemptKey, order: Start | None, *facts: bytes) -> None:
        """Create the record of an attempt. Its first line is the start order; the lines in `*facts` follow.
        Reserve disk space for later lines. Raise OSError if the disk is full.
        """
        name = format_key(key)
        new = f"{self._attempts}/.{name}"
        text = "null" if order is None else pack(order).decode("utf-8", "surrogatepass").rstrip()
        try:
            os.mkdir(new, 0o700)
            _write(f"{new}/record", attempt_record.encode_fact("order", self.boot_id, text) + b"".join(facts))
            os.rename(new, self.directory(key))
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def end_unclaimed(self, key: AttemptKey, line: bytes) -> bool:
        """Append `line`, the end of an attempt, to the record of the attempt, and return True. If a
        supervisor has begun to run the attempt, or if the record cannot be read or written, write nothing and
        return False.
        """
        try:
            descriptor = os.open(f"{self.directory(key)}/record", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if not attempt_record.lock_record(descriptor):
                return False
            record = attempt_record.read_record(descriptor)
            if len(attempt_record.decode_facts(record)) > 1:
                return False
            os.pwrite(descriptor, line, len(record))
            return True
        except (OSError, UnreadableRecord):
            return False
        finally:
            os.close(descriptor)

    def write_stop(self, stop: Stop) -> None:
        """Write the file `stop` with a stop order. The supervisor of the attempt reads this file after
        SIGTERM.
        """
        directory = self.directory((stop.job, stop.attempt))
        descriptor = os.open(
            f"{directory}/.stop", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, f"{stop.grace_s} {stop.checkpoint_s} {stop.why}".encode("utf-8", "replace"))
        finally:
            os.close(descriptor)
        os.rename(f"{directory}/.stop", f"{directory}/stop")

    def write_limit(self, key: AttemptKey, limit_s: float) -> None:
        """Write a longer time limit, in seconds from the start of the job. The supervisor reads this limit
        when the warning signal or the end of the job is due.
        """
        directory = self.directory(key)
        descriptor = os.open(
            f"{directory}/.limit", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, repr(float(limit_s)).encode())
        finally:
            os.close(descriptor)
        os.rename(f"{directory}/.limit", f"{directory}/limit")

    def write_go(self, key: AttemptKey) -> None:
        """Write the file `go`. The supervisor of a gang member waits for this file before starting the
        program.
        """
        os.close(os.open(f"{self.directory(key)}/go", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def settle(self, key: AttemptKey) -> None:
        os.rename(self.directory(key), self.settled_directory(key))

    def settled_directory(self, key: AttemptKey) -> str:
        return f"{self._settled}/{format_key(key)}"

    def delete(self, key: AttemptKey) -> None:
        """Delete the record and the logs of an attempt whose end the controller has stored."""
        directory = f"{self._settled}/{format_key(key)}"
        try:
            for name in os.listdir(directory):
                os.unlink(f"{directory}/{name}")
            os.rmdir(directory)
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)

    def quarantine(self, key: AttemptKey, damage: str) -> SpooledAttempt:
        """Move a damaged record to unreadable/. Write a new record, which says that the supervisor was lost,
        and return the content of the new record.
        """
        kept = self.root / "unreadable" / f"{format_key(key)}.{time.time_ns()}"
        directory = self.directory(key)
        why = f"supervisor_lost: its record in the spool cannot be trusted ({damage})"
        for found in (f"{directory}/record", directory):
            if os.path.lexists(found) and not (found == directory and os.path.isdir(directory)):
                os.rename(found, kept)
                why += f"; it is kept as {kept}"
        os.makedirs(directory, 0o700, exist_ok=True)
        _write(
            f"{directory}/.record",
            attempt_record.encode_fact("order", self.boot_id, "null")
            + attempt_record.encode_fact("claimed", 0, why),
        )
        os.rename(f"{directory}/.record", f"{directory}/record")
        return self.read(key)

    # --- reading records and logs ---

    def directory(self, key: AttemptKey) -> str:
        """Return the directory of an attempt whose end the controller has not stored yet."""
        return f"{self._attempts}/{format_key(key)}"

    def open_log(self, key: AttemptKey, stream: str) -> int:
        """Return a descriptor of a log (`stdout` or `stderr`). Raise FileNotFoundError if the attempt has no
        log yet.
        """
        # Use O_NONBLOCK, because a job that runs as the agent's user may have replaced its log with a pipe,
        # and open() would then block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(f"{self.directory(key)}/{stream}", flags)
        except FileNotFoundError:
            return os.open(f"{self._settled}/{format_key(key)}/{stream}", flags)

    def supervisor_pid(self, key: AttemptKey) -> int | None:
        """Return the pid of the supervisor that has locked the attempt's record; None if no supervisor
        runs.
        """
        return attempt_record.lock_holder(f"{self.directory(key)}/record")

    def unsettled(self) -> list[SpooledAttempt]:
        """Return the attempts whose end the controller has not stored yet, ordered by job and attempt
        number.
        """
        return [self.read(key) for key in sorted(self._keys(self._attempts))]

    def settled(self) -> list[SpooledAttempt]:
        """Return the settled attempts, of which only the logs are needed, in the order in which the attempts
        ended.
        """
        found = [self._read(key, f"{self._settled}/{format_key(key)}") for key in self._keys(self._settled)]
        found = [self._without_record(each) if each.damage else each for each in found]
        return sorted(found, key=lambda each: (each.status.ended_at or 0.0, each.status.job))

    def _without_record(self, found: SpooledAttempt) -> SpooledAttempt:
        """Return `found`, a settled attempt with a damaged record, as an ended attempt. The last change of
        the attempt's directory counts as the time of the end.
        """
        try:
            ended_at = os.stat(self.settled_directory((found.status.job, found.status.attempt))).st_mtime
        except OSError:
            ended_at = time.time()
        why = f"its record cannot be read: {found.damage}"
        return SpooledAttempt(replace(found.status, ended_at=ended_at, why=why))

    def _keys(self, folder: str) -> list[AttemptKey]:
        return [key for key in map(parse_key, os.listdir(folder)) if key is not None]

    def read(self, key: AttemptKey) -> SpooledAttempt:
        return self._read(key, self.directory(key))

    def _read(self, key: AttemptKey, directory: str) -> SpooledAttempt:
        bare = AttemptStatus(*key)
        try:
            if os.lstat(directory).st_uid != os.geteuid():
                raise UntrustedPath(f"{directory} belongs to uid {os.lstat(directory).st_uid}")
            descriptor = trusted_paths.open_file(f"{directory}/record")
            try:
                lines = attempt_record.decode_facts(attempt_record.read_record(descriptor))
            finally:
                os.close(descriptor)
            order = _order(key, lines)
            status = bare
            for fact in lines[1:]:
                status = apply_fact(status, fact)
        except (OSError, UnreadableRecord, UntrustedPath) as error:
            return SpooledAttempt(bare, damage=getattr(error, "strerror", None) or str(error))
        return SpooledAttempt(status, order, _stop(key, directory))


def _write(path: str, lines: bytes) -> None:
    """Write a new record and reserve space for the lines that will follow. Raise OSError if the disk is
    full.
    """
    data = lines + b" " * attempt_record.RESERVED_BYTES
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _stop(key: AttemptKey, directory: str) -> Stop | None:
    try:
        with open(f"{directory}/stop", encoding="utf-8") as file:
            grace, saving, why = file.read().split(" ", 2)
        return Stop(*key, float(grace), why, float(saving))
    except (FileNotFoundError, ValueError):
        return None


def _order(key: AttemptKey, lines: list[list[str]]) -> Start | None:
    if not lines or lines[0][0] != "order" or len(lines[0]) != 3:
        raise UnreadableRecord("line 1: not an order")
    text = lines[0][2]
    if text == "null":
        return None
    try:
        order = unpack(text.encode("utf-8", "surrogatepass"))
    except Malformed as error:
        raise UnreadableRecord(f"line 1: {error}") from None
    if not isinstance(order, Start) or (order.job, order.attempt) != key:
        raise UnreadableRecord("line 1: the order of another attempt")
    return order


def apply_fact(status: AttemptStatus, fact: list[str]) -> AttemptStatus:
    """Return the status of an attempt after one more line of its record. Raise UnreadableRecord if the line
    has wrong fields.
    """
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
        raise UnreadableRecord(f"the fact {fact[0]!r} has wrong fields") from None
    return status
