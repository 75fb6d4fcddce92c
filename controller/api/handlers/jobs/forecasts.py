"""Routes of explain, what-if and plan. The engine copy (a separate process) computes the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from controller.api.handlers.jobs import shown_effects
from controller.api.handlers.jobs.reasons import why
from controller.api.handlers.jobs.shown_effects import WHAT_IF_HEADER
from controller.api.handlers.service.known_names import need_node, need_share, need_tenant
from controller.api.server.access import operator
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.api.views.resources import job_view
from controller.core.fairshare.usage import share_problem
from controller.core.model.job import Job
from controller.daemon import Daemon
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.explanation import explain_placement, explain_waiting
from controller.questions.plan import plan as planned
from controller.questions.what_if import what_if as tried
from wire.api.forecasts import Explanation, Plan, WhatIf, WhatIfAnswer
from wire.api.reasons import NodeScore
from wire.names import JobState

T = TypeVar("T")

PLAN_S = 30.0
"""Seconds for which a computed plan is used for later requests, unless the journal gets a new entry."""

_plans: WeakKeyDictionary[Daemon, Plan] = WeakKeyDictionary()

DISCONNECT_CHECK_S = 0.2
"""Seconds between two checks whether the client is still connected."""


async def explain(call: Call) -> Explanation:
    """Explain the state of a job, the latest start of a queued job, and the placement of a running job."""
    job = await call.job()
    engine, busy = call.daemon.engine, ""
    if job.state is JobState.QUEUED:
        try:
            answer = await _ask(call, explain_waiting, job_view(engine, job))
        except Rejected as error:
            if error.refusal.code != "busy":
                raise
            answer, busy = None, error.refusal.message
        if answer is not None:
            return answer
    # Answer only with the reason of the job's state, because the job does not wait, or because the forecast
    # was not ready in time. Finding this reason takes little time.
    reason = await why(call, job)
    job = await call.job()
    if job.unended:
        reason = replace(reason, nodes=await _placement_receipt(call, job))
    complete, predicted_s = job.state is not JobState.QUEUED, engine.predicted(job)
    return Explanation(
        job_view(engine, job), reason, predicted_s=predicted_s, complete=complete, unknown=busy
    )


async def _placement_receipt(call: Call, job: Job) -> tuple[NodeScore, ...]:
    """Return the points of nodes at the placement of a running job; empty if the engine copy is busy."""
    with suppress(QuestionRefused):
        daemon = call.daemon
        found = await daemon.questions.ask_briefly(
            call.caller.user, explain_placement, job.id, now=daemon.now
        )
        return found or ()
    return ()


async def what_if(call: Call, request: WhatIf) -> WhatIfAnswer:
    """Show which jobs would start earlier and which later after a change of the cluster. Change nothing."""
    if request.config is not None:
        await call.permit(operator("forecast another configuration", changes=False))
    await call.daemon.settled()
    for name in (*request.drain, *request.resume):
        need_node(call, name)
    for share in request.shares:
        if share_problem(share.share, share.weight, share.soft, share.hard) is None:
            await need_share(call, share.share)
    for quota in request.quotas:
        await need_tenant(call, quota.scope, quota.name)
    facts = shown_effects.facts_of(call.daemon.state, request)
    only_first = call.query["part"] == "first"
    answer = await _forecast_effect(call, request, only_first)
    if answer is None:
        raise rejected(
            "busy",
            "there was not enough time to compute an answer",
            hint="Try again with more time: --within 10s. [questions] in scheduler.toml limits the time.",
        )
    return replace(answer, id=shown_effects.remember(call, request, only_first, answer, facts))


async def check_effect(call: Call) -> None:
    """If the request names a what-if answer, raise Rejected if the change would no longer have the effect
    that this answer has shown.

    1. Compare the states of the jobs, nodes and tenants that the what-if request names with their states at
       the time of the answer.
    2. If the journal has new entries, make the forecast again, and compare the refusals, the jobs that would
       be ended, and the jobs that would start later.
    3. If the forecast is not ready in time, accept the change: an operator must be able to cancel a job on a
       busy controller.

    Cost: one what-if answer if the journal has new entries; nothing if it has none. Example: an operator saw
    that a drain delays job 30 by 5 minutes. Then a user submits a large job. Now the drain would delay job 30
    by 2 hours, so the controller refuses the drain and names job 30.
    """
    id, daemon = call.request.headers.get(WHAT_IF_HEADER, ""), call.daemon
    if not id:
        return
    shown = shown_effects.shown_effect(call, id)
    if daemon.now() - shown.confirmed_at < shown_effects.CONFIRMED_S:
        return
    await daemon.settled()
    shown_effects.refuse_if(shown_effects.changed_facts(shown, daemon.state))
    if daemon.seq != shown.answer.as_of:
        answer = await _forecast_effect(call, shown.request, shown.only_first)
        shown_effects.refuse_if(shown_effects.changed_facts(shown, daemon.state))
        if answer is not None:
            shown_effects.refuse_if(shown_effects.differences(shown.answer, answer))
    shown.confirmed_at = daemon.now()


async def _forecast_effect(call: Call, request: WhatIf, only_first: bool) -> WhatIfAnswer | None:
    return await _ask(call, tried, request, call.caller.user, only_first, call.asker)


async def plan(call: Call) -> Plan:
    """Show the plan of the next hours: the times and nodes of all jobs, and the number of free GPUs.

    The answer is used again until the next entry of the journal, and for at most PLAN_S seconds.
    """
    daemon = call.daemon
    await daemon.settled()
    horizon_s = call.query["horizon"]
    kept = _plans.get(daemon)
    fresh = kept is not None and kept.as_of == daemon.seq and daemon.now() - kept.now < PLAN_S
    if kept is not None and fresh and kept.horizon_s == horizon_s and kept.complete:
        return kept
    answer = await _ask(call, planned, horizon_s)
    if answer is None:
        raise rejected(
            "busy",
            "there was not enough time to compute a plan",
            hint="Try again with more time: --within 10s. Or request a shorter horizon.",
        )
    _plans[daemon] = answer
    return answer


async def _ask(call: Call, work: Callable[..., Iterator[T]], *arguments: Any) -> T | None:
    """Run the function `work`, which computes the answer to a request, in the process of the engine copy, and
    return the answer. Return None if the answer was not ready in time. Stop the function if the client
    disconnects.
    """
    daemon = call.daemon
    asking = asyncio.ensure_future(
        daemon.questions.ask(
            call.caller.user, work, *arguments, now=daemon.now, within_s=call.query.get("within")
        )
    )
    try:
        while not asking.done():
            await asyncio.wait([asking], timeout=DISCONNECT_CHECK_S)
            transport = call.request.transport
            if transport is None or transport.is_closing():
                break
        if not asking.done():
            raise rejected("timeout", "the client has gone")
        return asking.result()
    except QuestionRefused as refused:
        raise Rejected(refused.refusal) from None
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await asking
