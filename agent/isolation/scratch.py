"""Scratch directories: local disk for one attempt, created before its start and deleted after its end.

All scratch directories of an agent are in one root directory. The root is in a directory in which all users
can write (/var/tmp). Therefore trusted_paths.py opens the root and checks that no user has replaced the root.

Only the job's user can read the directory of an attempt. Repeated scans measure the size of this directory,
so the measured size may be some seconds old, and deleted files that are still open do not count. File system
quotas are not used.
"""

from __future__ import annotations

import os
import stat
import time
from itertools import islice
from typing import Iterable, Iterator, Optional

from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

DEFAULT_PARENT = "/var/tmp"  # noqa: S108 - on disk, kept across reboots; users cannot write to the root
RESERVED_PART = 20
"""One RESERVED_PART-th (a twentieth) of the file system is not offered as scratch, so that it stays free for
the host. This does not apply if --scratch sets the amount.
"""
ENTRIES_PER_STEP = 2_000
"""The most directory entries that ScratchMeter measures in one step. Steps are short, because the supervisor
reacts to signals only between steps.
"""
STEP_PAUSE_S, ROUND_PAUSE_S = 0.05, 2.0
_MIB = 1 << 20
_PASSABLE = 0o711
SIZE_FILE = "scratch"
"""A file in the attempt's spool directory with the last measured size of its scratch directory, in bytes."""


class ScratchRefused(Exception):
    """Raised if the scratch directory cannot be created. The message is the reason."""


class ScratchArea:
    """The root (the directory with all scratch directories of this agent), and the amount of scratch that the
    node offers.

    The root is named `corral-TAG`, below `parent`. The root is never removed, so that no user can create a
    file or directory with its name. If a user has created a file of this name before the first job with
    scratch, the agent chooses another name for the root, and writes this name to the file at the path
    `memory`.
    """

    def __init__(
        self, parent: str, tag: str, offered_mib: Optional[int] = None, memory: Optional[str] = None
    ) -> None:
        self.parent = parent or DEFAULT_PARENT
        self._usual = f"corral-{tag}"
        self._memory = memory
        self._name = self._read_name()
        self._offered_mib = offered_mib
        self.problem = ""
        """The reason why this node offers no scratch; empty on a node with scratch."""

    @property
    def root(self) -> str:
        return os.path.join(self.parent, self._name)

    def directory(self, key: str) -> str:
        return os.path.join(self.root, key)

    def prepare(self, make: bool = True) -> str:
        """Create the root. If `make` is False, only check the root. Return the problem, or an empty string if
        scratch can be used.
        """
        self.problem = ""
        try:
            os.close(trusted_paths.open_parent(self.parent))
            try:
                os.close(_open_root(self.root, make))
            except UntrustedPath:
                # Choose another name, because a user has created a file or directory with this name.
                self._rename()
                if make:
                    os.close(_open_root(self.root))
        except FileNotFoundError:
            if make or not os.path.isdir(self.parent):
                self.problem = f"there is no directory {self.parent}"
        except UntrustedPath as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"{error.filename or self.root}: {error.strerror}"
        return self.problem

    def mib(self, directories: Iterable[str]) -> int:
        """Return the scratch that the node offers, in MiB. It is the amount of --scratch. Without --scratch
        it is the free disk space, less the part that stays free for the host, plus the scratch that attempts
        use now. `directories` are the spool directories of these attempts. If scratch cannot be used, return
        0.
        """
        if self.problem:
            return 0
        if self._offered_mib is not None:
            return self._offered_mib if os.path.isdir(self.parent) else 0
        try:
            found = os.statvfs(self.parent)
        except OSError:
            return 0
        free = (found.f_bavail - found.f_blocks // RESERVED_PART) * found.f_frsize
        free += sum(map(recorded_bytes, directories))
        return max(0, free) // (1024 * _MIB) * 1024

    def describe(self, mib: int) -> str:
        """Return a text for `corral nodes show`: the path of the scratch root, or the reason why the node
        offers no scratch. `mib` is the amount of scratch that the node offers.
        """
        if not os.path.isdir(self.parent):
            return f"none: there is no directory {self.parent}"
        if self.problem:
            return f"none: {self.problem}"
        return f"in {self.root}, measured every few seconds" if mib else f"none: {self.parent} is nearly full"

    def leftovers(self, keep: Iterable[str]) -> list[str]:
        """Return the scratch directories of all attempts except those in `keep`, which has names of attempts
        such as 42.1.
        """
        found, kept = [], set(keep)
        for name in sorted({self._usual, self._name}):
            root = os.path.join(self.parent, name)
            try:
                descriptor = _open_root(root, make=False)
            except (OSError, UntrustedPath):
                continue  # Skip this directory: it does not exist, or a user may have created it.
            try:
                names = sorted(set(os.listdir(descriptor)) - kept)
            finally:
                os.close(descriptor)
            found += [os.path.join(root, each) for each in names if each.replace(".", "", 1).isdigit()]
        return found

    def _read_name(self) -> str:
        if self._memory is None:
            return self._usual
        try:
            with open(self._memory, encoding="ascii") as file:
                name = file.read().strip()
        except (OSError, ValueError):
            return self._usual
        return name if name.startswith(self._usual) and "/" not in name else self._usual

    def _rename(self) -> None:
        self._name = f"{self._usual}-{os.urandom(6).hex()}"
        if self._memory is not None:
            with open(f"{self._memory}.new", "w", encoding="ascii") as file:
                file.write(f"{self._name}\n")
            os.replace(f"{self._memory}.new", self._memory)


def recorded_bytes(directory: str) -> int:
    """Return the size of an attempt's scratch at its last scan, in bytes; 0 if there was no scan.
    `directory` is the attempt's spool directory.
    """
    try:
        with open(os.path.join(directory, SIZE_FILE), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def record_bytes(directory: str, size: int) -> None:
    """Store the size of an attempt's scratch in its spool directory, for the next agent."""
    try:
        descriptor = os.open(
            os.path.join(directory, SIZE_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        os.write(descriptor, str(size).encode())
        os.close(descriptor)
    except OSError:
        # Ignore the error. Without the stored size, the next agent offers too little scratch, but nothing
        # fails.
        pass


def make_directory(folder: str, user: Optional[tuple[int, int, list[int]]]) -> None:
    """Create an empty scratch directory that only the job's user can read. Raise ScratchRefused if that
    fails.
    """
    root, name = os.path.split(folder)
    try:
        parent = _open_root(root)
        try:
            if not trusted_paths.remove_tree(parent, name):
                raise ScratchRefused(f"the scratch directory {folder} is there already and cannot be removed")
            os.mkdir(name, 0o700, dir_fd=parent)
            if user is not None:
                os.chown(name, user[0], user[1], dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)
    except UntrustedPath as error:
        raise ScratchRefused(f"cannot make the scratch directory {folder}: {error}") from None
    except OSError as error:
        raise ScratchRefused(f"cannot make the scratch directory {folder}: {error.strerror}") from None


def _open_root(root: str, make: bool = True) -> int:
    """Return a descriptor of the scratch root; create the root if `make` is True. Users can open directories
    in the root but cannot list the root.
    """
    folder, name = os.path.split(root)
    parent = trusted_paths.open_parent(folder)
    try:
        descriptor = trusted_paths.open_child(parent, name, root, make, _PASSABLE)
    except NotADirectoryError:
        raise UntrustedPath(
            f"{root} is not a directory but a file or a link. Check it and delete it: rm {root}"
        ) from None
    finally:
        os.close(parent)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != _PASSABLE:
        os.fchmod(descriptor, _PASSABLE)
    return descriptor


def remove_directory(folder: str) -> bool:
    """Delete a scratch directory with its content. Return whether the directory no longer exists."""
    root, name = os.path.split(folder)
    try:
        parent = _open_root(root, make=False)
    except FileNotFoundError:
        return True
    except (OSError, UntrustedPath):
        return False  # Delete nothing, because a user may have created this root directory.
    try:
        return trusted_paths.remove_tree(parent, name)
    finally:
        os.close(parent)


def delete_in_background(folders: list[str]) -> None:
    """Delete directories in a separate process, because the deletion may take minutes."""
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
        # Close all descriptors, so that this process does not keep the agent's connection to the controller
        # open.
        os.closerange(0, 1 << 16)
        for folder in folders:
            remove_directory(folder)
    finally:
        os._exit(0)


class ScratchMeter:
    """Measures the size of a directory by repeated scans. Each scan is divided into short steps."""

    def __init__(self, folder: str, limit_mib: int) -> None:
        self._folder = folder
        self._limit = limit_mib * _MIB
        self._walk: Optional[Iterator[int]] = None
        self._sum = 0
        self._began = 0.0
        self.size = 0
        """The size of the directory in bytes, from the last complete scan, or from a scan that ended early
        because the limit was exceeded.
        """

    def step(self) -> float:
        """Do one step of the scan: measure at most ENTRIES_PER_STEP directory entries. Return the number of
        seconds to wait until the next step.
        """
        if self._walk is None:
            self._walk, self._sum, self._began = _sizes(self._folder), 0, time.monotonic()
        some = list(islice(self._walk, ENTRIES_PER_STEP))
        self._sum += sum(some)
        if len(some) == ENTRIES_PER_STEP and self._sum <= self._limit:
            return STEP_PAUSE_S
        # The whole directory has been scanned, or its size already exceeds the limit: end the scan.
        self.size, self._walk = self._sum, None
        return max(ROUND_PAUSE_S, 10 * (time.monotonic() - self._began))

    @property
    def over(self) -> bool:
        """Return whether the directory is larger than its limit."""
        return self.size > self._limit


def _sizes(folder: str) -> Iterator[int]:
    """Yield the size on disk of each entry below a directory, in bytes. A file with several hard links
    counts once. Directories that cannot be read are skipped.
    """
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
