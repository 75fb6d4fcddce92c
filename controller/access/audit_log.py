"""The audit log: one JSON line for each change and refusal, chained by hash, in files of limited size."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from wire import trusted_paths
from wire.api.service.access import AuditPage, AuditRecord
from wire.codec import decode, dumps, encode

FILE = "audit.jsonl"
MIB = 1 << 20
DAY_S = 86_400
WINDOW_S, MOST_EQUAL = 10.0, 10
"""Of equal refusals, at most MOST_EQUAL are recorded in WINDOW_S seconds. The next recorded one has the
number of those that were left out. So a flood of refusals cannot push other entries out of the log.
"""
MOST_KEYS = 10_000
SYSLOG_PRIORITY = b"<86>corral-audit: "

log = logging.getLogger("corral.audit")


class AuditLog:
    """The audit log of one controller, in the directory `audit` of its state directory.

    1. `record` adds a line to audit.jsonl. The hash of a line covers the hash of the line before, so that the
       change or deletion of a line in the middle can be detected.
    2. The hash of the last line (the head) is logged at the start and once a day. Operators compare it with
       the head in a log on another host, because a chain alone does not show that its end was cut off.
    3. A file that has reached its size is renamed, and the oldest files beyond the limit are deleted.
    4. With `syslog`, each line is also sent to this unix socket. A line that the socket does not take at once
       is not sent, because a slow syslog must not delay requests.

    Cost: one write of some hundred bytes for each entry, without fsync.
    """

    def __init__(self, directory: Path, *, file_mib: float, files: int, syslog: str) -> None:
        self._directory = directory
        self._most_bytes = int(file_mib * MIB)
        self._files = files
        os.close(trusted_paths.open_directory(str(directory), make=True))
        self.seq, self.head = 0, ""
        self._day = -1
        self._refusals: dict[tuple[str, ...], list[float]] = {}
        for record in self._read(0):
            self.seq, self.head = record.seq, record.chain
        self._file = self._open()
        self._syslog = syslog
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if syslog else None
        if self._socket is not None:
            self._socket.setblocking(False)

    def close(self) -> None:
        """Close the file. A second call does nothing. Later entries go to the controller's log only."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._socket is not None:
            self._socket.close()

    def record(self, entry: AuditRecord) -> None:
        """Add an entry with the next number and its hash. Of many equal refusals, add only some
        (MOST_EQUAL).
        """
        repeated = self._repeated(entry) if entry.status in (401, 403) else 0
        if repeated is None:
            return
        entry = replace(entry, seq=self.seq + 1, repeated=repeated, chain="")
        head = chain_of(self.head, entry)
        line = dumps(encode(replace(entry, chain=head))).encode("utf-8", "replace") + b"\n"
        try:
            self._append(line)
        except OSError as error:
            # Do not refuse the request, because its change is already on disk. Write the entry to the
            # controller's log.
            log.error("an entry of the audit log is lost: %s: %s", error.strerror, line.decode())
            return
        self.seq, self.head = entry.seq, head
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(SYSLOG_PRIORITY + line[:-1], self._syslog)
        if int(entry.at // DAY_S) != self._day:
            self._day = int(entry.at // DAY_S)
            log.info("audit log: entry %d has the hash %s", self.seq, self.head)
        if os.fstat(self._file).st_size >= self._most_bytes:
            self._rotate()

    def page(self, after: int, limit: int) -> AuditPage:
        """Return up to `limit` entries after number `after`, and the number of the first entry whose hash is
        wrong, if any.
        """
        found: list[AuditRecord] = []
        broken, before = None, None
        for record in self._read(after):
            if before is not None and broken is None:
                right = chain_of(before.chain, replace(record, chain=""))
                if record.seq != before.seq + 1 or record.chain != right:
                    broken = record.seq
            before = record
            if record.seq > after and len(found) < limit:
                found.append(record)
        return AuditPage(tuple(found), self.seq, self.head, broken)

    def _append(self, line: bytes) -> None:
        """Append a whole line, or nothing: if the disk becomes full half-way, remove the part that was
        written, because the next line would join it. Raise OSError in this case.
        """
        size, rest = os.fstat(self._file).st_size, memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def _repeated(self, entry: AuditRecord) -> int | None:
        """Return None if this refusal must be left out. Otherwise return the number of equal refusals that
        were left out since the last recorded one.
        """
        key = (entry.caller, entry.token, entry.address, entry.action, str(entry.status))
        now = time.monotonic()
        if len(self._refusals) >= MOST_KEYS:
            self._refusals.clear()
        count = self._refusals.setdefault(key, [now, 0, 0])
        if now - count[0] > WINDOW_S:
            count[0], count[1] = now, 0
        count[1] += 1
        if count[1] > MOST_EQUAL:
            count[2] += 1
            return None
        left_out, count[2] = int(count[2]), 0
        return left_out

    def _read(self, after: int) -> Iterator[AuditRecord]:
        """Yield the entries of all files that may have entries after number `after`, the oldest first."""
        paths = self._old_files()
        newer = [path for path in paths if _last_of(path) > after]
        for path in (*newer, self._directory / FILE):
            with suppress(FileNotFoundError), path.open("rb") as file:
                for line in file:
                    # Skip a line that is not complete, because a crash has cut it off.
                    with suppress(ValueError):
                        yield decode(AuditRecord, json.loads(line))

    def _old_files(self) -> list[Path]:
        return sorted(self._directory.glob("audit-*.jsonl"), key=_last_of)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        file = trusted_paths.open_file(str(self._directory / FILE), flags)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")  # End the last line, which a crash has cut off.
        return file

    def _rotate(self) -> None:
        os.rename(self._directory / FILE, self._directory / f"audit-{self.seq:012d}.jsonl")
        os.close(self._file)
        self._file = self._open()
        for path in self._old_files()[: -self._files]:
            path.unlink()


def chain_of(before: str, entry: AuditRecord) -> str:
    """Return the hash of `entry`, whose field `chain` must be empty. `before` is the hash of the entry before
    it.
    """
    return hashlib.sha256(f"{before}\n{dumps(encode(entry))}".encode("utf-8", "replace")).hexdigest()


def _last_of(path: Path) -> int:
    number = path.stem.removeprefix("audit-")
    return int(number) if number.isdigit() else 0


SECRET = frozenset(
    (
        "arguments",
        "command",
        "data",
        "digest",
        "env",
        "environment",
        "id_token",
        "script",
        "text",
        "variables",
    )
)
"""The fields of requests and of jobs that may contain secrets. The audit log has only their names."""


def without_secrets(value: Any, depth: int = 6) -> Any:
    """Return JSON data for the audit log: secrets are left out, and long texts and lists are cut."""
    if isinstance(value, dict):
        if not depth:
            return "…"
        return {
            str(name)[:100]: "…" if name in SECRET and each else without_secrets(each, depth - 1)
            for name, each in list(value.items())[:100]
        }
    if isinstance(value, list | tuple):
        return [without_secrets(each, depth - 1) for each in value[:50]] if depth else "…"
    return value[:200] if isinstance(value, str) else value
