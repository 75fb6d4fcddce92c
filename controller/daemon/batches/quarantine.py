"""Finds and refuses an input that has crashed the engine, so that only its sender is affected."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from controller.core.model.inputs.controller_inputs import ControllerStarted
from controller.daemon.agent_links import AgentLinks
from controller.daemon.batches.inbox import Inbox, PendingInput, refuse
from controller.store.errors import StoreFailure

MAX_CRASHES_PER_MINUTE = 50
"""If the engine crashes more often than this within a minute, the controller stops."""
QUARANTINE_S = 60.0
"""Seconds for which an agent stays disconnected after its report has crashed the engine."""

log = logging.getLogger("corral.daemon")


class Quarantine:
    """Finds the input that has crashed the engine, and refuses it. `begin` takes these steps after each
    crash:

    1. If the inputs of the batch were processed together, put them back, so that each is processed alone.
    2. If the batch is one of these single inputs, this input has crashed the engine. Refuse it. If an agent
       sent it, disconnect this agent for QUARANTINE_S.
    3. Load the state on disk again, because the engine may have stopped in the middle of a change.
    4. Reconnect all agents, so that each sends all its reports again: reports that were not on disk are lost
       with the old state.
    """

    def __init__(self, inbox: Inbox, agents: AgentLinks, recover: Callable[[], None]) -> None:
        """`recover` loads the state on disk again."""
        self.crashes: deque[float] = deque(maxlen=MAX_CRASHES_PER_MINUTE)
        """The times (monotonic clock) of the last crashes of the engine."""
        self._inbox = inbox
        self._agents = agents
        self._recover = recover

    def may_begin(self, batch: list[PendingInput], failure: Exception, *, committed: bool) -> bool:
        """Count a crash of the engine. Return whether the controller must find the input of the batch that
        caused the crash.

        If the result is False, the controller stops. It is False if the store failed, if events of the batch
        are on disk already (`committed`), if the batch has no input but ControllerStarted, or if the engine
        has crashed too often in the last minute.
        """
        blamed = any(not isinstance(given, ControllerStarted) for given, _ in batch)
        if isinstance(failure, StoreFailure) or committed or not blamed:
            return False
        now = time.monotonic()
        often = len(self.crashes) == MAX_CRASHES_PER_MINUTE and now - self.crashes[0] < 60.0
        self.crashes.append(now)
        return not often

    async def begin(self, batch: list[PendingInput], one_by_one: bool, failure: Exception) -> None:
        """Take the steps in the docstring of the class for a batch that has crashed the engine."""
        culprit = ""
        if not one_by_one:
            self._inbox.put_back(batch)
        else:
            [(given, future)] = batch
            log.error("an input crashed the engine and is quarantined: %.500s", given, exc_info=failure)
            culprit = getattr(given, "node", "") if future is None else ""
            refuse(batch, failure)
        self._recover()
        why = "its report caused an internal error of the controller; see the controller's log"
        await self._agents.reconnect_all(later=culprit, later_s=QUARANTINE_S, why=why)
