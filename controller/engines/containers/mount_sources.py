"""Decides which paths of the host the container of a user may mount."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from controller.engines.containers.container_request import RequestProblem


def reachable_source(source: str, roots: Sequence[str], uid: int, groups: Sequence[int]) -> str:
    """Resolve the symbolic links of `source`, and return the path to mount. Raise RequestProblem if this path
    is not below a mount root, or if the user could not reach it on the host.

    The daemon opens the path as root, so the modes of the directories above the path do not protect it.
    Therefore check here that the user may enter each of these directories. Access control lists are not read:
    if the mode of a directory does not let the user in, the path is refused.

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
