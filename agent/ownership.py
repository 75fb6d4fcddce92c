"""Whose a spool is. Jobs have numbers, and those of one cluster mean nothing to another.

The file holds `ID@MACHINE`: the cluster's own id, and where its controller ran, for people.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from wire.text import plain

_NAME = "cluster"


def other(root: Path, cluster: str) -> str:
    """The cluster that this spool belongs to, in words for people; empty if it is ours or nobody's."""
    try:
        kept = (root / _NAME).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
    number, _, machine = kept.partition("@")
    if not cluster or not kept or number == cluster.partition("@")[0]:
        return ""
    return plain(f"{number[:8]} (its controller ran on {machine})")


def keep(root: Path, cluster: str) -> None:
    """It is ours from now on."""
    with suppress(FileNotFoundError):
        if (root / _NAME).read_text(encoding="utf-8", errors="replace").strip() == cluster:
            return  # an agent must be able to start on a full disk
    fresh = root / f".{_NAME}"
    fresh.write_text(f"{cluster}\n", encoding="utf-8")
    os.rename(fresh, root / _NAME)


def complaint(root: Path, whose: str) -> str:
    """What is said to the second of two clusters."""
    return (
        f"the spool directory {root} belongs to another Corral cluster, {whose}, and its agent or its jobs "
        "are there. Give this one a directory of its own with --spool, and each its part of the host; or, if "
        "that cluster is gone for good and nothing of it runs any more, delete the directory."
    )
