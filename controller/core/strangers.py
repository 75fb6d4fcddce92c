"""Who has come past the queue and who has gone, by what an agent tells of the processes on its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.core.inputs import StrangerGone, StrangerSeen
from controller.core.offqueue import OffQueue
from wire.frames import GpuProcess

_NOBODY = "?"
"""The owner of a process that was gone before anybody could look."""


def news_of(
    node: str, processes: Sequence[GpuProcess], known: OffQueue
) -> Iterator[StrangerSeen | StrangerGone]:
    """What the engine has to be told; a user counts once on a GPU."""
    there = {
        (node, each.uuid, each.user): each
        for each in reversed(processes)
        if each.job is None and each.user != _NOBODY
    }
    for key in known.on(node):
        if key not in there:
            yield StrangerGone(*key)
    for key, each in there.items():
        if key not in known.open:
            yield StrangerSeen(*key, each.pid, each.command)
