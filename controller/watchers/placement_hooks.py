"""Calls the placement hooks of plugins in a thread, after the placements are on disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Sequence

from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.event import Event
from controller.core.pipeline.hooks import Hook, Placed
from controller.core.state.state import State

MOST_WAITING = 10_000
"""The greatest number of placements that may wait for the hooks. Further placements are not passed to the
hooks.
"""
END_S = 2.0
"""Seconds that a hook may continue to run when the controller stops."""

log = logging.getLogger("corral.hooks")


class PlacementHooks:
    """Calls each placement hook of a plugin at most once for each placement of a job on nodes.

    Placements that still wait for the thread when the controller stops are not passed to the hooks.
    """

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self._waiting: queue.Queue[Placed | None] = queue.Queue(MOST_WAITING)
        self.thread: threading.Thread | None = None
        self._behind = False

    def reconfigure(self, hooks: Sequence[Hook]) -> None:
        """Use other hooks from the next placement on."""
        self._hooks = hooks

    def tell(self, events: Iterable[Event], state: State) -> None:
        """Queue the placements of jobs among these committed events, for the thread that calls the hooks.
        This method never blocks.
        """
        if not self._hooks:
            return
        for event in events:
            if isinstance(event, JobPlaced) and event.job in state.jobs:
                self._put(_placed(event, state))

    def close(self) -> None:
        """Stop calling hooks, and wait up to END_S seconds until the hook that is running returns."""
        if self.thread is not None:
            while True:
                try:
                    self._waiting.put_nowait(None)
                    break
                except queue.Full:
                    self._waiting.get_nowait()
            self.thread.join(END_S)

    def _put(self, placed: Placed) -> None:
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="hooks", daemon=True)
            self.thread.start()
        try:
            self._waiting.put_nowait(placed)
            self._behind = False
        except queue.Full:
            if not self._behind:
                log.warning(
                    "the hooks are %d placements behind; further placements are dropped", MOST_WAITING
                )
            self._behind = True

    def _run(self) -> None:
        while (placed := self._waiting.get()) is not None:
            for hook in self._hooks:
                hook.on_placed(placed)


def _placed(event: JobPlaced, state: State) -> Placed:
    job = state.jobs[event.job]
    return Placed(
        job.id,
        job.label,
        job.name,
        job.user,
        job.spec.project,
        job.spec.queue,
        event.attempt,
        event.at,
        max(0.0, event.at - job.submitted_at),
        event.allocations,
    )
