"""Scratch: local disk that an attempt has to itself, made before it starts and gone when it is over.

Nobody but its user can look into the directory of an attempt. How much it holds is found by looking, again
and again: it may be some seconds old, and files that were deleted but are still open are not seen. Quotas of
the file system are not used.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from itertools import islice
from typing import Iterable, Iterator, Optional

USUAL = "/var/tmp"  # noqa: S108 - on disk and kept across reboots; what lies in it is ours alone
KEPT_BACK = 20
"""One part of so many of the file system stays free for the host, where nobody says how much may be used."""
STEP = 2_000
"""Entries looked at in one go: the supervisor has other things to do."""
PAUSE_S, SELDOM_S = 0.05, 2.0
TRIES = 3
_MIB = 1 << 20
_PASSABLE = 0o711
USED = "scratch"
"""The file beside the record in which the supervisor notes what it found when it last looked, in bytes."""


class Refused(Exception):
    """There can be no scratch there; says in words why."""


class Area:
    """Where the scratch of one agent's attempts lies, and how much there is."""

    def __init__(self, parent: str, tag: str, offered_mib: Optional[int] = None) -> None:
        self.parent = parent or USUAL
        self.root = os.path.join(self.parent, f"corral-{tag}")
        self._offered_mib = offered_mib

    def place(self, key: str) -> str:
        """The directory of one attempt."""
        return os.path.join(self.root, key)

    def mib(self, places: Iterable[str]) -> int:
        """What jobs may have; what those attempts fill that run already is theirs, and not lost to it."""
        if self._offered_mib is not None:
            return self._offered_mib if os.path.isdir(self.parent) else 0
        try:
            found = os.statvfs(self.parent)
        except OSError:
            return 0
        free = (found.f_bavail - found.f_blocks // KEPT_BACK) * found.f_frsize
        free += sum(map(used, places))
        return max(0, free) // (1024 * _MIB) * 1024

    def describe(self, mib: int) -> str:
        """In words for people."""
        if not os.path.isdir(self.parent):
            return f"none: there is no directory {self.parent}"
        return f"in {self.root}, measured every few seconds" if mib else f"none: {self.parent} is nearly full"

    def leftovers(self, keep: Iterable[str]) -> list[str]:
        """What attempts have left that nobody is responsible for any more."""
        try:
            return [self.place(name) for name in sorted(set(os.listdir(self.root)) - set(keep))]
        except OSError:
            return []


def used(place: str) -> int:
    """Bytes that the attempt with this place in the spool was last seen to fill."""
    try:
        with open(os.path.join(place, USED), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def note(place: str, size: int) -> None:
    """Write down for the next agent how much an attempt fills."""
    try:
        descriptor = os.open(
            os.path.join(place, USED), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        os.write(descriptor, str(size).encode())
        os.close(descriptor)
    except OSError:
        pass  # it only makes the next agent offer less


def make(folder: str, user: Optional[tuple[int, int, list[int]]]) -> None:
    """An empty directory that is this user's alone; raises Refused."""
    try:
        if os.path.lexists(folder) and not remove(folder):
            raise Refused(f"the scratch directory {folder} is there already and cannot be removed")
        for tries in range(TRIES):
            _make_root(os.path.dirname(folder))
            try:
                os.mkdir(folder, 0o700)
                break
            except FileNotFoundError:  # the last of others that were there has taken the root along
                if tries == TRIES - 1:
                    raise
        if user is not None:
            os.chown(folder, user[0], user[1])
    except OSError as error:
        raise Refused(f"cannot make the scratch directory {folder}: {error.strerror}") from None


def _make_root(root: str) -> None:
    """What all attempts of this agent have theirs in: others may pass through and see nothing."""
    with suppress(FileExistsError):
        os.mkdir(root, 0o700)
    found = os.lstat(root)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Refused(f"{root} is there already, and not ours alone")
    if stat.S_IMODE(found.st_mode) != _PASSABLE:
        os.chmod(root, _PASSABLE)


def remove(folder: str) -> bool:
    """Delete it with all that is in it, and look whether it is gone."""
    from shutil import rmtree  # seldom needed, and slow to import for those who are forked often

    def open_up(_: object, path: str, __: object) -> None:
        if os.geteuid():  # whoever may do everything needs no permission, and must not follow anybody's links
            for each in (os.path.dirname(path), path):
                if each.startswith(folder) and not os.path.islink(each):
                    with suppress(OSError):
                        os.chmod(each, 0o700)

    for _ in range(TRIES):  # the first time permissions may be in the way
        if os.path.islink(folder):
            os.unlink(folder)
        rmtree(folder, onerror=open_up)
        if not os.path.lexists(folder):
            break
    with suppress(OSError):
        os.rmdir(os.path.dirname(folder))  # if it was the last
    return not os.path.lexists(folder)


def sweep(folders: list[str]) -> None:
    """Delete leftovers beside everything else, however long that takes."""
    if not folders:
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        os.closerange(0, 1 << 16)  # the agent's line must end with the agent
        for folder in folders:
            remove(folder)
    finally:
        os._exit(0)


class Measure:
    """Adds up what a directory holds, bit by bit, again and again."""

    def __init__(self, folder: str, limit_mib: int) -> None:
        self._folder = folder
        self._limit = limit_mib * _MIB
        self._walk: Optional[Iterator[int]] = None
        self._sum = 0
        self._began = 0.0
        self.size = 0
        """Bytes found in the last whole round."""

    def step(self) -> float:
        """Look at some more of it; how many seconds from now to go on."""
        if self._walk is None:
            self._walk, self._sum, self._began = _sizes(self._folder), 0, time.monotonic()
        some = list(islice(self._walk, STEP))
        self._sum += sum(some)
        if len(some) == STEP and self._sum <= self._limit:
            return PAUSE_S
        self.size, self._walk = self._sum, None  # also if it is more than enough already
        return max(SELDOM_S, 10 * (time.monotonic() - self._began))

    @property
    def over(self) -> bool:
        """Does it hold more than it may?"""
        return self.size > self._limit


def _sizes(folder: str) -> Iterator[int]:
    """Bytes on disk, entry by entry; a file with several names counts once, what cannot be read never."""
    waiting, seen = [folder], set()
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    waiting.append(entry.path)
                elif found.st_nlink > 1:
                    if found.st_ino in seen:
                        continue
                    seen.add(found.st_ino)
                yield found.st_blocks * 512
