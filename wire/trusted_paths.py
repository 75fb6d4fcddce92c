"""Directories and files that only this process and root can change.

Controller and agents often run as root on hosts where users log in. If a user can rename, replace or prepare
a directory that root then writes to or deletes from, the user decides what root writes and deletes. So every
directory that they use for themselves (state, socket, spool, scratch, the directory of the agent's file) is
opened here, and every file that decides what root runs (configuration, plugins, prolog, epilog) is checked.

Algorithm of `open_directory`, after sshd's StrictModes, but by descriptor so that nothing can be exchanged
between the check and the use:
1. Start at "/" and open one component after the other, relative to the last one and with O_NOFOLLOW.
2. A symbolic link is followed only if root or the user of this process made it. It must have one name only,
   because every user may make hard links to a link of root's. The components of its target are opened in the
   same way.
3. Each directory on the way belongs to root, to the user of this process, or to the owner of "/" (which in a
   user namespace is not called root), and only its owner may write to it. Others may if it is sticky, as /tmp
   is: then they cannot rename or delete our files.
4. The last directory belongs to root or to the user of this process, and only its owner may write to it.
   Sticky is not enough.

Invariant: below a directory that `open_directory` returned, names are as this process and root created
them, until an administrator changes it. Paths below it may therefore be used as paths.
Cost: two system calls for each component, some 50 microseconds for a usual path.

Example: `/scratch` has mode 0777 and no sticky bit. `open_directory("/scratch/corral")` raises UntrustedPath
with the command `chmod +t /scratch`.

Imported by the fork server and sent to hosts before the agent: only cheap imports, none of Corral.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For directories on the way: a user may pass through a parent that it may not list."""
_LINK_ERRORS = (errno.ENOTDIR, errno.ELOOP)
"""What the kernel answers when a link stands where a directory was to be opened."""
_MOST_LINKS = 40
_MOST_OPEN = 64


class UntrustedPath(Exception):
    """Another user could change this path; the message says what, where and which command repairs it."""


def open_directory(path: str, make: bool = False, mode: int = 0o700) -> int:
    """A descriptor of a directory that only our user can change; raises UntrustedPath or OSError."""
    folder, name = os.path.split(os.path.abspath(path))
    if not name:
        raise UntrustedPath("/ cannot be used for this; name a directory below it")
    parent = open_parent(folder, make)
    try:
        return open_child(parent, name, path, make, mode)
    except OSError as error:
        # because the last component may be a link that the administrator made, for instance to another disk
        if error.errno not in _LINK_ERRORS or not _is_link(parent, name):
            raise
        target = _target(parent, name, path)
    finally:
        os.close(parent)
    there = open_parent(os.path.join(folder, target), make)
    try:
        _check_own(there, path)
        return os.open(".", _DIRECTORY_FLAGS, dir_fd=there)
    finally:
        os.close(there)


def open_parent(path: str, make: bool = False) -> int:
    """A descriptor of a directory in which others cannot replace our entries. It may be sticky."""
    at = os.open("/", _PATH_FLAGS)
    try:
        left, seen, links = _components(path), "", 0
        trusted = {0, os.geteuid(), os.fstat(at).st_uid}
        while left:
            name = left.pop(0)
            seen = f"{seen}/{name}"
            try:
                below = _enter(at, name, make)
            except OSError as error:
                if error.errno not in _LINK_ERRORS or not _is_link(at, name):
                    raise
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), seen) from None
                target = _target(at, name, seen, trusted)
                if target.startswith("/"):
                    os.close(at)
                    at, seen = os.open("/", _PATH_FLAGS), ""
                else:
                    seen = seen.rpartition("/")[0]
                left = [part for part in target.split("/") if part not in ("", ".")] + left
                continue
            os.close(at)
            at = below
            if name == "..":
                seen = os.path.normpath(seen)
            _check_parent(os.fstat(at), seen, trusted)
    except OSError as error:
        os.close(at)
        raise OSError(error.errno, error.strerror, seen) from None
    except BaseException:
        os.close(at)
        raise
    return at


def open_child(parent: int, name: str, path: str, make: bool = False, mode: int = 0o700) -> int:
    """A descriptor of our directory in an open one, never through a link. `path` is for messages."""
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=parent)
        descriptor = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    try:
        _check_own(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_file(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a regular file that belongs to our user and that no other user can write to."""
    descriptor = os.open(path, flags | _FILE_FLAGS, mode)
    found = os.fstat(descriptor)
    what = ""
    if not stat.S_ISREG(found.st_mode):
        what = "is not a file"
    elif found.st_uid != os.geteuid():
        what = f"belongs to {_name(found.st_uid)}"
    elif found.st_nlink > 1 or _is_writable_by_others(found):
        what = "can be written to by others"
    if what:
        os.close(descriptor)
        raise UntrustedPath(f"{path} {what}")
    return descriptor


def check_file(path: str) -> None:
    """Raise UntrustedPath if another user could change or replace this file, OSError if it cannot be found.

    For files that decide what this process runs. Root, this process's user or the owner of "/" owns the file
    and the links to it, and only the owner may write to it. Its directories are as `open_parent` wants them.
    """
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(os.path.abspath(path))
        parent = open_parent(folder)
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                break
            path = os.path.join(os.path.realpath(folder), _target(parent, name, path))
        finally:
            os.close(parent)
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if found.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
        raise UntrustedPath(
            f"{path} belongs to {_name(found.st_uid)}, who can change what {_name(os.geteuid())} runs. "
            f"Read it, then give it to root: chown root {path}"
        )
    if _is_writable_by_others(found):
        raise UntrustedPath(
            f"{path} can be written to by others (mode {stat.S_IMODE(found.st_mode):04o}), who can change "
            f"what {_name(os.geteuid())} runs. Read it, then take the right away: chmod go-w {path}"
        )


def remove_tree(parent: int, name: str) -> bool:
    """Delete an entry of our directory with all below it; whether it is gone.

    Its content may be a user's and malicious: links are deleted and not followed, and deeply nested
    directories are moved up before descriptors run out.
    """
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return True
    try:
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            return True
        top = _open_to_delete(parent, name)
        try:
            while _empty(top, top, 0):  # once more for what was moved up
                pass
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=parent)
        return True
    except OSError:
        return False


def _empty(folder: int, top: int, depth: int) -> bool:
    """Delete what can be deleted in an open directory; whether anything was moved up to `top`."""
    moved = False
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        try:
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            if depth >= _MOST_OPEN:
                os.rename(name, f".moved-{os.urandom(8).hex()}", src_dir_fd=folder, dst_dir_fd=top)
                moved = True
                continue
            below = _open_to_delete(folder, name)
            try:
                moved = _empty(below, top, depth + 1) or moved
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=folder)
        except OSError:
            continue  # because the caller checks at the end whether all is gone
    return moved


def _open_to_delete(parent: int, name: str) -> int:
    if os.geteuid():  # because root needs no permission, and all below is of one user otherwise
        os.chmod(name, 0o700, dir_fd=parent)
    return os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)


def _enter(at: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _PATH_FLAGS, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # because another agent may have made it
        os.mkdir(name, 0o700, dir_fd=at)
    return os.open(name, _PATH_FLAGS, dir_fd=at)


def _is_link(parent: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _components(path: str) -> list[str]:
    return [part for part in os.path.abspath(path).split("/") if part]


def _target(parent: int, name: str, path: str, trusted: set[int] | None = None) -> str:
    """The target of a link; raises UntrustedPath if another user made it or can replace it."""
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if found.st_uid not in (trusted or {0, os.geteuid(), os.stat("/").st_uid}) or found.st_nlink != 1:
        raise UntrustedPath(
            f"{path} is a symbolic link that {_name(found.st_uid)} made or can exchange. "
            f"Look where it leads (ls -ld {path}) and delete it: rm {path}"
        )
    return os.readlink(name, dir_fd=parent)


def _check_parent(found: os.stat_result, path: str, trusted: set[int]) -> None:
    if found.st_uid not in trusted:
        raise UntrustedPath(
            f"{path} belongs to {_name(found.st_uid)}, who can replace everything below it. "
            f"Give it to root (chown root {path}) or choose a directory that is not below it."
        )
    if _is_writable_by_others(found) and not found.st_mode & stat.S_ISVTX:
        raise UntrustedPath(
            f"{path} can be written to by others, who can replace Corral's files in it (mode "
            f"{stat.S_IMODE(found.st_mode):04o}). Set its sticky bit (chmod +t {path}) "
            f"or take the right away (chmod go-w {path})."
        )


def _check_own(descriptor: int, path: str) -> None:
    found = os.fstat(descriptor)
    if found.st_uid not in (0, os.geteuid()):
        raise UntrustedPath(
            f"{path} belongs to {_name(found.st_uid)}, not to {_name(os.geteuid())}, so what lies in it may "
            f"have been prepared. Look at it and delete it (rm -r {path}) or choose another directory."
        )
    if _is_writable_by_others(found):
        raise UntrustedPath(
            f"{path} can be written to by others (mode {stat.S_IMODE(found.st_mode):04o}), so what lies in "
            f"it may have been prepared. Look at it, then take the right away: chmod go-w {path}"
        )


def _is_writable_by_others(found: os.stat_result) -> bool:
    """Whether others than the owner may write to it. The owner's private group does not count."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private(found.st_uid, found.st_gid)


def _is_private(uid: int, gid: int) -> bool:
    import grp
    import pwd  # as `grp` only where a group may write, which is rare

    try:
        owner, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return owner.pw_gid == gid and owner.pw_name == group.gr_name and set(group.gr_mem) <= {owner.pw_name}


def _name(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
