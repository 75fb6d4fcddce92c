"""Passes inputs to the engine at intervals: estimated starts, long waits and orders to rebalance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from controller.config import Config
from controller.core.accounting.wait_alarms import WaitAlarms
from controller.core.model.inputs.controller_inputs import NoteStart
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.policy_inputs import Rebalance
from controller.core.pipeline.pipeline import Pipeline
from controller.core.rebalance.rebalancer import AUTO
from controller.core.state.state import State
from controller.questions.engine_copy.client import EngineCopyClient
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.start_estimation import start_estimates
from controller.watchers.periodic_inputs import PeriodicInputs

LONG_WAITS_S = 60.0
"""Seconds between two searches for jobs that have waited much longer than usual."""
SAMPLER = ""
"""The user name with which the controller itself asks the engine copy (a process with a copy of the state)
for forecasts. No account has this name.
"""


class BackgroundInputs:
    """Passes inputs to the engine that no user, operator or agent causes."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        state: Callable[[], State],
        now: Callable[[], float],
        wait_alarms: WaitAlarms,
        questions: EngineCopyClient,
        writable: Callable[[], bool],
        settled: Callable[[], Awaitable[None]],
        tell: Callable[[Input], None],
    ) -> None:
        """`writable` returns whether the store can be written. `settled` waits until all changes of the state
        are on disk. `tell` passes an input to the engine.
        """
        self._state = state
        self._now = now
        self._wait_alarms = wait_alarms
        self._wait_alarm = config.scheduler.wait_alarm
        self._questions = questions
        self._writable = writable
        self._settled = settled
        score_s = config.backfill.score_starts_s
        self._start_estimates = PeriodicInputs("starts", score_s, self._estimate_starts, tell)
        self._long_waits = PeriodicInputs("waits", LONG_WAITS_S, self._find_long_waits, tell)
        every_s = _rebalance_every_s(pipeline)
        self._rebalancing = PeriodicInputs("rebalance", every_s, self._order_rebalancing, tell)

    def open(self) -> None:
        self._rebalancing.open()
        self._start_estimates.open()
        self._long_waits.open()

    def reconfigure(self, config: Config, pipeline: Pipeline) -> None:
        self._wait_alarm = config.scheduler.wait_alarm
        self._start_estimates.reconfigure(config.backfill.score_starts_s)
        self._rebalancing.reconfigure(_rebalance_every_s(pipeline))

    def close(self) -> None:
        self._rebalancing.close()
        self._start_estimates.close()
        self._long_waits.close()

    async def _estimate_starts(self) -> list[NoteStart]:
        """Return inputs that record the estimated starts of a few waiting jobs without an estimate. When such
        a job starts, the engine compares its start with the estimate (`corral report starts`). Estimates that
        `corral explain` computes for users are not recorded.

        The engine copy, a separate process, computes the estimates, so that submits are not delayed. The list
        is empty if no job waits, or if the engine copy has too many other questions to answer.
        """
        if not len(self._state().queue) or not self._writable():
            return []
        with suppress(QuestionRefused):
            asked = self._questions.ask(SAMPLER, start_estimates, now=self._now, keep_copy=False)
            return await asked or []
        return []

    async def _find_long_waits(self) -> list[Input]:
        """Return an input for each waiting job that has waited much longer than usual."""
        await self._settled()
        return [*self._wait_alarms.due(self._state(), self._wait_alarm, self._now())]

    async def _order_rebalancing(self) -> list[Input]:
        return [Rebalance(AUTO)]


def _rebalance_every_s(pipeline: Pipeline) -> float:
    """Return the seconds between two automatic rebalancings; 0 if only operators order rebalancing."""
    rules = pipeline.rebalance
    return rules.interval_s if rules.mode == "auto" else 0.0
