"""The record of one attempt: a file of lines with checksums. Each line is written before its content is
reported to the controller.

6b1c0f2e order <boot id> <the Start frame, or null>
    90af3c11 claimed <supervisor's pid> <reason, if the supervisor is already lost>
    c4d1f0b3 ready
    1d00b7aa started <pid> <start time in ticks> <unix time>
    5e0fa2c4 checkpoint <unix time> <bytes> <path>
    0c6e11b8 over
    5b9d2f60 lost <why the supervisor was killed>
    77c2e9d0 ended <unix time> <exit code> <signal> <CPU seconds> <peak MiB> <reason>

`claimed`: a supervisor has begun to run the attempt. `ready`: a gang member waits for the other members.
`over` means that no process of the job is left and the epilog (a program of the site) begins. Only records of
jobs with a lease have `over`.

Every line begins with the CRC-32 of the rest of the line, to detect damage. The agent writes the first line
and reserves space for the other lines, so that an end can be recorded on a full disk. A supervisor locks the
file until the supervisor exits, and the kernel reports the pid of the process that holds the lock. Therefore
a later process with the same pid is not mistaken for the supervisor.

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import fcntl
import os
import struct
from binascii import crc32

RESERVED_BYTES = 2048
_FLOCK = "hhqqi"
_WHY_BYTES = 600


class UnreadableRecord(Exception):
    """Raised for a damaged line of a record or of the FIFO on which supervisors report. The message describes
    the damage. For a line of a record, the message also has the line number.
    """


def encode_fact(kind: str, *fields: object) -> bytes:
    """Return one line of an attempt's record: checksum, kind and fields. Only the last field may contain
    spaces, and no field may contain a newline.
    """
    text = " ".join([kind, *map(str, fields)]).encode("utf-8", "surrogatepass")
    return b"%08x %b\n" % (crc32(text), text)


def encode_end(
    at: float, code: int | None, signal: int | None, cpu_s: float = 0.0, rss_mib: int = 0, why: str = ""
) -> bytes:
    """Return the `ended` line of a record. `at` is a unix time, `cpu_s` the CPU time in seconds, and
    `rss_mib` the peak memory in MiB. If `why` is too long for the reserved space of the record, `why` is cut.
    """
    reason = " ".join(why.split()).encode("utf-8", "replace")[:_WHY_BYTES].decode("utf-8", "ignore")
    shown = ["-" if value is None else value for value in (code, signal)]
    return encode_fact("ended", f"{at:.6f}", *shown, f"{cpu_s:.3f}", rss_mib, reason)


def decode_fact(raw: bytes) -> list[str]:
    """Return the kind and the fields of one line of a record. Raise UnreadableRecord if the checksum is
    wrong.
    """
    check, _, text = raw.partition(b" ")
    if len(check) != 8 or b"%08x" % crc32(text) != check:
        raise UnreadableRecord("its checksum is wrong")
    kind, _, rest = text.decode("utf-8", "surrogatepass").partition(" ")
    return [kind, *rest.split(" ", _SPLITS.get(kind, -1))]


_SPLITS = {"order": 1, "claimed": 1, "lost": 0, "checkpoint": 2, "ended": 5}


def read_record(descriptor: int) -> bytes:
    """Return the content of a record file, without the reserved space at its end."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).rstrip(b" ")


def decode_facts(data: bytes) -> list[list[str]]:
    """Return the kind and the fields of each line of a record. The first line is always the start order.
    Raise UnreadableRecord if a line is damaged.
    """
    found = []
    lines = data.split(b"\n")
    if lines.pop():
        raise UnreadableRecord(f"line {len(lines) + 1} is not complete")
    for number, raw in enumerate(lines, 1):
        try:
            found.append(decode_fact(raw))
        except UnreadableRecord as error:
            raise UnreadableRecord(f"line {number}: {error}") from None
    return found


def lock_record(descriptor: int) -> bool:
    """Lock a record until this process exits, and return True. Return False if another process has locked the
    record.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock_holder(path: str) -> int | None:
    """Return the pid of the process that has locked this record; None for a record without a lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(pid)
