"""Finds the requests of a job that an execution engine does not support."""

from __future__ import annotations

from controller.engines.contract import EngineCaps
from wire.agent.orders import Start

FLAGS = {
    "image": "--image",
    "mounts": "--mount",
    "output": "--output",
    "error": "--error",
    "health": "health checks",
    "checkpoint_command": "--checkpoint-command",
    "checkpoint_signal": "--checkpoint-signal",
    "warn_signal": "--signal",
    "scratch_mib": "--scratch",
    "tasks": "--tasks-per-node",
}
"""The fields of Start that not every engine supports, with their names for users. A job with a field that
its engine does not support is refused, because the engine would run another job than the user wanted.
"""
_DEFAULTS = Start(0, 0, (), "", 0, 0)


def unsupported_requests(order: Start, caps: EngineCaps) -> list[str]:
    """Return the options of the job that the engine does not support, as users write them."""
    found = [
        flag
        for field, flag in FLAGS.items()
        if field not in caps.supports and getattr(order, field) != getattr(_DEFAULTS, field)
    ]
    if order.nodes > 1 and not caps.gangs:
        found.append("jobs on several nodes")
    return found
