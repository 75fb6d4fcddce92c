"""The record of one attempt: checked lines in one file, written before anybody is told.

    6b1c0f2e order <boot id> <the Start frame, or null>
    90af3c11 claimed <supervisor's pid> <words, if it is lost already>
    c4d1f0b3 ready
    1d00b7aa started <pid> <start time in ticks> <unix time>
    5e0fa2c4 checkpoint <unix time> <bytes> <path>
    77c2e9d0 ended <unix time> <exit code> <signal> <cpu seconds> <MiB> <why, in words>

Every line begins with the CRC-32 of its rest, so a flipped bit is told from a fact. The agent writes the
first line and room for the others: an exit can be recorded on a full disk. A supervisor holds a lock on the
file for as long as it lives; the kernel answers who that is, so no recycled pid is ever taken for it.

Read by the agent and by the nursery: imports only what is cheap.
"""

from __future__ import annotations

import fcntl
import os
import struct
from binascii import crc32

ROOM = 2048
_FLOCK = "hhqqi"
_WHY_BYTES = 600


class Unreadable(Exception):
    """A record, or a message made of its lines, is not what was written."""


def line(kind: str, *fields: object) -> bytes:
    """One checked line; the last field may hold spaces, no field may hold a newline."""
    text = " ".join([kind, *map(str, fields)]).encode("utf-8", "surrogatepass")
    return b"%08x %b\n" % (crc32(text), text)


def ended(
    at: float, code: int | None, signal: int | None, cpu_s: float = 0.0, rss_mib: int = 0, why: str = ""
) -> bytes:
    """The last line of a record, short enough for its room and for one atomic write to a pipe."""
    words = " ".join(why.split()).encode("utf-8", "replace")[:_WHY_BYTES].decode("utf-8", "ignore")
    shown = ["-" if value is None else value for value in (code, signal)]
    return line("ended", f"{at:.6f}", *shown, f"{cpu_s:.3f}", rss_mib, words)


def fact(raw: bytes) -> list[str]:
    """Kind and fields of one line; raises Unreadable if it is not as it was written."""
    check, _, text = raw.partition(b" ")
    if len(check) != 8 or b"%08x" % crc32(text) != check:
        raise Unreadable("its checksum is wrong")
    kind, _, rest = text.decode("utf-8", "surrogatepass").partition(" ")
    return [kind, *rest.split(" ", _SPLITS.get(kind, -1))]


_SPLITS = {"order": 1, "claimed": 1, "checkpoint": 2, "ended": 5}


def written(descriptor: int) -> bytes:
    """What a record holds, without the room behind it."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).rstrip(b" ")


def facts(data: bytes) -> list[list[str]]:
    """All lines of a record; the first is the order."""
    found = []
    lines = data.split(b"\n")
    if lines.pop():
        raise Unreadable(f"line {len(lines) + 1} is not finished")
    for number, raw in enumerate(lines, 1):
        try:
            found.append(fact(raw))
        except Unreadable as error:
            raise Unreadable(f"line {number}: {error}") from None
    return found


def hold(descriptor: int) -> bool:
    """Lock a record for the life of this process; False if another supervisor lives."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def holder(path: str) -> int | None:
    """The pid of the living supervisor of this record."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(pid)
