"""Decides which paths of the host the container of a user may mount."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from controller.engines.containers.container_request import RequestProblem


def reachable_source(source: str, roots: Sequence[str], uid: int, groups: Sequence[int]) -> str:
    """Return the path that is mounted for `source`, without symbolic links. Raise RequestProblem if it is not
    below a mount root, or if the user could not reach it without the mount.

    The daemon opens the path as root. In the container, only the modes of the path itself and of what is
    below it protect files. So a directory above it that the user may not enter must be checked here.
    Access control lists are not read: a directory whose mode keeps the user out counts as closed.

    Example: with the root /home and the mode 0700 of /home/bob, ada cannot mount /home/bob/data, nor
    /home/ada/link that points there.
    """
    path = os.path.realpath(source)
    if not any(is_below(path, os.path.realpath(root)) for root in roots):
        raise RequestProblem(f"{source} cannot be mounted: it points to {path}, outside of the mount roots")
    above = os.path.dirname(path)
    while uid:
        try:
            facts = os.stat(above)
        except OSError as error:
            raise RequestProblem(f"{source} cannot be mounted: {above}: {error.strerror}") from None
        if not _may_enter(facts, uid, groups):
            raise RequestProblem(f"{source} cannot be mounted: the user may not enter {above}")
        if above == "/":
            break
        above = os.path.dirname(above)
    return path


def is_below(path: str, root: str) -> bool:
    """Return whether a path is a mount root, or is below it."""
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _may_enter(facts: os.stat_result, uid: int, groups: Sequence[int]) -> bool:
    if facts.st_uid == uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid in groups:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)
