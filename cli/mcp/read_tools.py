"""The tools of the MCP server that only read. The docstring of a tool is the description that the language
model gets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cli.mcp.answers import ask
from cli.mcp.effects import effects_of
from wire.codec import encode
from wire.names import SHOWN_STATES, JobState

MOST_JOBS, MOST_LOG_BYTES, DAY_S = 200, 64 * 1024, 86_400


def queue(user: str = "", state: str = "", limit: int = 50) -> dict[str, Any]:
    """List jobs that have not ended, with their places in the queue. With `state`, list the jobs in this
    state (QUEUED, SCHEDULED, RUNNING, COMPLETED, FAILED, CANCELLED). `user` selects the jobs of one user.
    `limit` is at most 200.
    """
    states = [JobState(state.upper())] if state else [each for each in SHOWN_STATES if not each.terminal]
    return ask(
        lambda client: client.jobs(states=states, user=user, limit=max(1, min(limit, MOST_JOBS)), places=True)
    )


def job(job: str) -> dict[str, Any]:
    """Show one job: its request, state, nodes and attempts. `job` is an id such as 17, or 12_3."""
    return ask(lambda client: client.job(job))


def why(job: str) -> dict[str, Any]:
    """Explain why a job waits, when the job starts at the latest, and which change of its request would start
    the job now.
    """
    return ask(lambda client: client.explain(job))


def when(hours: float = 12.0) -> dict[str, Any]:
    """Show when and on which nodes the scheduler expects jobs to run in the next `hours` hours."""
    return ask(lambda client: client.plan(hours * 3_600))


def what_if(action: str, target: str = "", spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Show which jobs would start sooner or later after a change. Nothing is changed.

    `action` is submit, cancel, hold, release or preempt (of the job `target`), drain or resume (of the node
    `target`). For submit, `spec` is a JobSpec of the API: {"command": ["python", "train.py"], "gpus": 1}.
    """
    return ask(lambda client: effects_of(client, action, target, spec))


def logs_tail(job: str, stream: str = "stdout", bytes: int = 4_096) -> dict[str, Any]:
    """Show the end of the output of a job. `stream` is stdout or stderr; `bytes` is at most 65536."""
    most = max(1, min(bytes, MOST_LOG_BYTES))
    return ask(
        lambda client: b"".join(client.logs(job, stream=stream, offset=-most)).decode("utf-8", "replace")
    )


def nodes() -> dict[str, Any]:
    """List the nodes with their states, their GPUs, and the jobs that hold the GPUs."""
    return ask(lambda client: client.nodes())


def usage(by: str = "user", days: float = 7.0) -> dict[str, Any]:
    """Show GPU-hours, GPU load and energy of the last `days` days, by user, project, queue or job."""
    since = int(time.time() - days * DAY_S)
    return ask(lambda client: client.usage(by, since))


def fairness(by: str = "project", days: float = 7.0) -> dict[str, Any]:
    """Show for each project or user the GPU-hours that it used in the last `days` days, the GPU-hours to
    which it was entitled, and how long its jobs waited.
    """
    since = int(time.time() - days * DAY_S)
    return ask(lambda client: client.fairness(by, since))


def health() -> dict[str, Any]:
    """Show the version and state of the controller, the caller's role, and counts of jobs, nodes and GPUs."""
    return ask(lambda client: {"health": encode(client.health()), "cluster": encode(client.cluster())})


READ_TOOLS = (queue, job, why, when, what_if, logs_tail, nodes, usage, fairness, health)
