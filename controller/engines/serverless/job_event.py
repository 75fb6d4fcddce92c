"""Makes the event for one job: the JSON document with which the engine calls the function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from controller.engines.contract import Task
from controller.engines.serverless.function_options import MARGIN_S, MOST_PAYLOAD_BYTES, FunctionOptions
from controller.engines.serverless.job_objects import (
    RESULT,
    SLACK_S,
    STARTED,
    STDERR,
    STDOUT,
    STOP,
    JobKeys,
)
from controller.engines.serverless.object_store import ONLY_NEW, ObjectStore

EVENT_VERSION = 1


def event_of(task: Task, tag: str, options: FunctionOptions) -> dict[str, Any]:
    """Return the part of the event that does not depend on the time: the command and its limits."""
    order, most = task.order, options.longest_s - MARGIN_S
    return {
        "corral": EVENT_VERSION,
        "tag": tag,
        "command": list(order.command),
        "env": dict(order.env),
        "umask": order.umask,
        "merge_output": order.merge_output,
        "limit_s": most if order.time_limit_s is None else min(order.time_limit_s, most),
        "longest_s": options.longest_s,
        "grace_s": order.grace_s,
        "poll_s": options.poll_s,
        "log_bytes": options.log_kib * 1024,
    }


def addresses(store: ObjectStore, keys: JobKeys, tag: str, options: FunctionOptions) -> dict[str, str]:
    """Return the presigned addresses with which the function can read and write the objects of this job, and
    no other objects.

    The address of the claim expires first. So an event that is later than `late_s` cannot start the job, even
    if the claim was deleted meanwhile.
    """
    late, longest = options.late_s, options.late_s + options.longest_s + SLACK_S
    made = {
        "claim": store.presigned("PUT", keys.claim(tag), late, ONLY_NEW),
        "claimed": store.presigned("GET", keys.claim(tag), late),
        "stop": store.presigned("GET", keys.part(tag, STOP), longest),
    }
    for name in (STARTED, STDOUT, STDERR, RESULT):
        made[name] = store.presigned("PUT", keys.part(tag, name), longest)
    return made


def payload_of(event: Mapping[str, Any], until: float, urls: Mapping[str, str]) -> bytes:
    """Return the event as bytes. After `until` (seconds since 1970) the event does not start the job any
    more.
    """
    return json.dumps({**event, "until": until, "urls": urls}, separators=(",", ":")).encode()


def size_refusal(payload: bytes) -> str:
    """Return why an event is too long; empty if it is not."""
    if len(payload) <= MOST_PAYLOAD_BYTES:
        return ""
    return (
        f"the command and the environment of the job make an event of {len(payload)} bytes, and functions "
        f"accept at most {MOST_PAYLOAD_BYTES}; put large data into files that the job reads"
    )
