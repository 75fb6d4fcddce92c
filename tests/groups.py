"""Removes control groups that killed agents of tests leave behind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from agent.isolation import cgroup_detection


def remove(node: str, spool: Path) -> None:
    """Remove the groups of this agent that are empty."""
    found = cgroup_detection.detect("auto", cgroup_detection.cgroup_tag(node, spool.absolute()))
    for parent in filter(None, [found.v2_parent, *found.parents.values()]):
        for place, _, _ in os.walk(parent, topdown=False):
            with suppress(OSError):
                os.rmdir(place)
