"""Opens and checks directories and files that only this process and root can change.

The controller and the agents often run as root on hosts where users log in. Suppose a user could rename,
replace or create a directory that root uses. Then this user could make root write or delete other files.
Therefore this module opens every directory that the controller and the agents use: state, socket, spool,
scratch, the agent's program. It also checks every file that names programs which root runs: configuration,
plugins, prolog, epilog.

Algorithm of `open_directory`. It has the rules of sshd's StrictModes, but works on descriptors, so that no
directory can be replaced between the check and the use:
1. Start at "/", and open each component relative to the previous directory, with O_NOFOLLOW.
2. Follow a symbolic link only if root or the user of this process made the link. Its link count must be 1,
   because every user may make hard links to a symbolic link of root. Open the components of its target in the
   same way.
3. Each parent directory must belong to root, to the user of this process, or to the owner of "/". In a user
   namespace, the owner of "/" is the real root, which has another uid there. Other users may write to the
   directory only if the directory has the sticky bit, like /tmp. Then other users cannot rename or delete
   files that are not theirs.
4. The last directory must belong to root or to the user of this process. No other user may write to the last
   directory, even with the sticky bit.

Invariant: only this process, root and an administrator can change names below a directory that
`open_directory` returned. Therefore these names may be used as ordinary paths. Cost: two system calls for
each component, about 50 microseconds for a usual path.

Example: `/scratch` has mode 0777 and no sticky bit. `open_directory("/scratch/corral")` raises UntrustedPath
with the command `chmod +t /scratch`.

The fork server imports this module, and hosts get this module before the agent. Therefore this module imports
only small standard modules and no other module of Corral.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for parent directories. O_PATH opens a directory without the right to list the directory."""
_LINK_ERRORS = (errno.ENOTDIR, errno.ELOOP)
"""Errors that the kernel returns if the directory to open is a symbolic link."""
_MOST_LINKS = 40
_MOST_OPEN = 64


class UntrustedPath(Exception):
    """Raised for a path that another user could change. The message has the path, the problem, and a command
    that repairs the problem.
    """


def open_directory(path: str, make: bool = False, mode: int = 0o700) -> int:
    """Open a directory that only root and the user of this process can change, and return its descriptor.
    With `make`, create missing directories. Raise UntrustedPath if other users can change the directory, and
    OSError if the directory cannot be opened.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if not name:
        raise UntrustedPath("the directory / is not allowed here; name a directory below it")
    parent = open_parent(folder, make)
    try:
        return open_child(parent, name, path, make, mode)
    except OSError as error:
        if error.errno not in _LINK_ERRORS or not _is_link(parent, name):
            raise
        # Follow a symbolic link at the end of the path, because an administrator may have moved the directory
        # to another disk.
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
    """Open a directory in which other users cannot rename or delete files of this process, and return its
    descriptor. Other users may write to the directory only if the directory has the sticky bit.
    """
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
    """Open the directory `name` in the open directory `parent`, and return its descriptor. With `make`,
    create a missing directory with this mode. Symbolic links are not followed. `path` is used only in error
    messages.
    """
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
    """Open a file and return its descriptor. Raise UntrustedPath if it is not a regular file, does not belong
    to the user of this process, has several hard links, or can be written to by another user. `flags` and
    `mode` are as in `os.open`.
    """
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
    """Raise UntrustedPath if another user could change or replace this file, and OSError if the file does not
    exist.

    Use this for files that name programs which this process runs. The file, and each symbolic link to the
    file, must belong to root, to the user of this process or to the owner of "/". Only the owner may write to
    the file. Its directories must pass the checks of `open_parent`.
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
            f"{path} belongs to {_name(found.st_uid)}, so this user can change what "
            f"{_name(os.geteuid())} runs. Read the file, then give it to root: chown root {path}"
        )
    if _is_writable_by_others(found):
        raise UntrustedPath(
            f"{path} can be written to by others (mode {stat.S_IMODE(found.st_mode):04o}). They can "
            f"change what {_name(os.geteuid())} runs. Read the file, then remove the right: chmod go-w {path}"
        )


def remove_tree(parent: int, name: str) -> bool:
    """Delete the entry `name` of an open directory, with everything below it. Return whether the entry no
    longer exists.

    A user may have made the content with bad intent, so symbolic links are deleted and not followed. Deeply
    nested directories are first moved to the top directory `name`, because otherwise this process would need
    too many open files.
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
            # Repeat while `_empty` has moved deeply nested directories to `top`.
            while _empty(top, top, 0):
                pass
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=parent)
        return True
    except OSError:
        return False


def _empty(folder: int, top: int, depth: int) -> bool:
    """Delete the content of the open directory `folder`, as far as possible. `depth` is the number of
    directories between `top` and `folder`. Return whether a directory that was nested too deeply was moved to
    the open directory `top`.
    """
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
            continue  # Skip the entry. If the entry still exists, the later deletion of its directory fails.
    return moved


def _open_to_delete(parent: int, name: str) -> int:
    # A user other than root needs write permission on a directory to delete its entries.
    if os.geteuid():
        os.chmod(name, 0o700, dir_fd=parent)
    return os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)


def _enter(at: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _PATH_FLAGS, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        # Ignore the error FileExistsError, because another agent may have made the directory at the same
        # time.
        os.mkdir(name, 0o700, dir_fd=at)
    return os.open(name, _PATH_FLAGS, dir_fd=at)


def _is_link(parent: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _components(path: str) -> list[str]:
    return [part for part in os.path.abspath(path).split("/") if part]


def _target(parent: int, name: str, path: str, trusted: set[int] | None = None) -> str:
    """Return the target of a symbolic link. Raise UntrustedPath if another user made or could replace the
    link.
    """
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if found.st_uid not in (trusted or {0, os.geteuid(), os.stat("/").st_uid}) or found.st_nlink != 1:
        raise UntrustedPath(
            f"{path} is a symbolic link that {_name(found.st_uid)} made or can replace. "
            f"Check its target (ls -ld {path}) and delete it: rm {path}"
        )
    return os.readlink(name, dir_fd=parent)


def _check_parent(found: os.stat_result, path: str, trusted: set[int]) -> None:
    if found.st_uid not in trusted:
        raise UntrustedPath(
            f"{path} belongs to {_name(found.st_uid)}, so this user can replace everything below it. "
            f"Give it to root (chown root {path}) or choose a directory that is not below it."
        )
    if _is_writable_by_others(found) and not found.st_mode & stat.S_ISVTX:
        raise UntrustedPath(
            f"{path} can be written to by others (mode {stat.S_IMODE(found.st_mode):04o}). They can "
            f"replace Corral's files in it. Set its sticky bit (chmod +t {path}) or remove the right "
            f"(chmod go-w {path})."
        )


def _check_own(descriptor: int, path: str) -> None:
    found = os.fstat(descriptor)
    if found.st_uid not in (0, os.geteuid()):
        raise UntrustedPath(
            f"{path} belongs to {_name(found.st_uid)}, not to {_name(os.geteuid())}, so that user may have "
            f"changed its content. Check it and delete it (rm -r {path}) or choose another directory."
        )
    if _is_writable_by_others(found):
        raise UntrustedPath(
            f"{path} can be written to by others (mode {stat.S_IMODE(found.st_mode):04o}), so another user "
            f"may have changed its content. Check it, then remove the right: chmod go-w {path}"
        )


def _is_writable_by_others(found: os.stat_result) -> bool:
    """Return whether users other than the owner may write to the file. Permissions of the owner's private
    group (a group with the same name and no other users) are ignored.
    """
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private(found.st_uid, found.st_gid)


def _is_private(uid: int, gid: int) -> bool:
    # Import pwd and grp only here, because only a few files (those with group write permission) need these
    # modules.
    import grp
    import pwd

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
