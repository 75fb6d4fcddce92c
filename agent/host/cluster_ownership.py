"""The cluster that a spool belongs to, because job numbers are valid in one cluster only.

The file holds `ID@MACHINE`: the cluster's own id, and where its controller ran, for messages.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from wire.text import printable

_NAME = "cluster"


def other_cluster(root: Path, cluster: str) -> str:
    """The other cluster that this spool belongs to, for messages; empty if there is none."""
    try:
        owner = (root / _NAME).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
    number, _, machine = owner.partition("@")
    if not cluster or not owner or number == cluster.partition("@")[0]:
        return ""
    return printable(f"{number[:8]} (its controller ran on {machine})")


def write_owner(root: Path, cluster: str) -> None:
    """Write that the spool belongs to this cluster."""
    with suppress(FileNotFoundError):
        if (root / _NAME).read_text(encoding="utf-8", errors="replace").strip() == cluster:
            return  # because an agent must be able to start on a full disk
    new = root / f".{_NAME}"
    new.write_text(f"{cluster}\n", encoding="utf-8")
    os.rename(new, root / _NAME)


def other_cluster_error(root: Path, other: str) -> str:
    """The error for an agent of another cluster."""
    return (
        f"the spool directory {root} belongs to another Corral cluster, {other}, whose agent or jobs use it. "
        "Choose another directory with --spool, and give each cluster its part of the host. Or "
        "delete the directory, if that cluster does not exist any more and none of its jobs runs."
    )
