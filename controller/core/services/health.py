"""Records the health of jobs that have a health check, and stops unhealthy jobs."""

from __future__ import annotations

from controller.core.input_handlers.context import Context
from controller.core.model.events.attempts import HealthChanged
from controller.core.model.inputs import agent_inputs
from wire.job.health import HealthAction
from wire.names import JobState, Reason


class HealthHandler:
    """Handles the results of health checks. An agent reports a result only if it differs from the last
    reported result.

    An unhealthy job is stopped, unless the action of its health check is NOTIFY. After the stop, the action
    and the job's restart policy decide if the job runs again (lifecycle/requeue_policy.py).
    """

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._record = context.record
        self._stopper = context.stopper

    def on_report(self, given: agent_inputs.HealthReported, now: float) -> None:
        """Record whether a running job is healthy, and stop an unhealthy job. A report about an earlier
        attempt has no effect.
        """
        job = self._state.jobs.get(given.job)
        if job is None or job.state is not JobState.RUNNING or job.attempt != given.attempt:
            return
        if given.node and given.node not in job.members:
            return
        if job.spec.health is None or job.healthy is given.healthy:
            return
        self._record(HealthChanged(job.id, now, job.attempt, given.healthy, given.why))
        notifies = job.spec.health.action is HealthAction.NOTIFY
        if not given.healthy and not notifies and job.stopping is None:
            self._stopper.stop(job, Reason.UNHEALTHY, given.why, now)
