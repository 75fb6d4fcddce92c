"""Control groups that agents of tests leave behind when they are killed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from agent import cgroups


def remove(node: str, spool: Path) -> None:
    """Take away the groups of this agent; whoever is still in one keeps it."""
    found = cgroups.find("auto", cgroups.tag_of(node, spool.absolute()))
    for parent in filter(None, [found.whole, *found.parents.values()]):
        for place, _, _ in os.walk(parent, topdown=False):
            with suppress(OSError):
                os.rmdir(place)
