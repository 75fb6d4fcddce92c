"""Placements told to hooks once they are on disk, in a thread of its own: no hook holds anybody up."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Sequence

from controller.core.events import Event, JobPlaced
from controller.core.outlets import Hook, Placed
from controller.core.state import State

MOST_WAITING = 10_000
"""Placements that hooks may be behind; what comes beyond is not told."""
END_S = 2.0
"""So long a hook may take to finish when the controller stops."""

log = logging.getLogger("corral.hooks")


class Hooks:
    """Tells each placement once at most: what was not told when the controller stops is lost."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self._waiting: queue.Queue[Placed | None] = queue.Queue(MOST_WAITING)
        self.thread: threading.Thread | None = None
        self._behind = False

    def tell(self, events: Iterable[Event], state: State) -> None:
        """These events are on disk. Never waits."""
        if not self._hooks:
            return
        for event in events:
            if isinstance(event, JobPlaced) and event.job in state.jobs:
                self._put(_placed(event, state))

    def close(self) -> None:
        """Tell no more; what is being told may finish."""
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
                log.warning("hooks are %d placements behind; more are not told", MOST_WAITING)
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
