"""Records to which cluster a spool belongs, because jobs of different clusters may have the same id.

The file `cluster` contains `ID@MACHINE`: the id of the cluster, and the host name of its controller, which
error messages show.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from wire.text import printable

_NAME = "cluster"


def other_cluster(root: Path, cluster: str) -> str:
    """Return a description of the cluster to which the spool belongs, if this is another cluster than
    `cluster`. Return an empty string if the spool belongs to `cluster` or to no cluster.
    """
    try:
        owner = (root / _NAME).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
    number, _, machine = owner.partition("@")
    if not cluster or not owner or number == cluster.partition("@")[0]:
        return ""
    return printable(f"{number[:8]} (its controller ran on {machine})")


def write_owner(root: Path, cluster: str) -> None:
    with suppress(FileNotFoundError):
        if (root / _NAME).read_text(encoding="utf-8", errors="replace").strip() == cluster:
            # Do not write the same content again, so that the agent can also start on a full disk.
            return
    new = root / f".{_NAME}"
    new.write_text(f"{cluster}\n", encoding="utf-8")
    os.rename(new, root / _NAME)


def other_cluster_error(root: Path, other: str) -> str:
    return (
        f"the spool directory {root} belongs to another Corral cluster, {other}, whose agent or jobs use it. "
        "Choose another directory with --spool, and give each cluster its part of the host. Or "
        "delete the directory, if that cluster does not exist any more and none of its jobs runs."
    )
