"""Refuses a change whose effect is no longer the effect that a what-if answer has shown to the user."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.core.state.state import State
from controller.daemon import Daemon
from wire.api.forecasts import Shift, WhatIf, WhatIfAnswer
from wire.api.problem import EFFECT_CHANGED
from wire.api.what_if_words import delay
from wire.text import duration, printable

WHAT_IF_HEADER = "Corral-What-If"
KEPT_S = 900.0
"""Seconds for which the controller remembers a what-if answer."""
MOST, MOST_OF_USER = 400, 64
"""The most answers that are remembered, in all and for one user. The oldest ones are forgotten first. An
answer lists at most 600 jobs, so 400 answers need at most about 40 MB.
"""
CONFIRMED_S = 60.0
"""For this many seconds after an answer was checked, further requests that name the answer are accepted
without a check. For example, a drain of several nodes is several requests, and the first request changes the
effect of the later ones.
"""
GREW_S, GREW_PART = 600.0, 0.1
"""A delay counts as greater than the shown delay if the difference is more than GREW_S seconds, and more than
the fraction GREW_PART of the job's wait.
"""
NAMED = 3
"""The most differences that an error message names."""


@dataclass(slots=True)
class ShownEffect:
    """A what-if answer that a user saw. `facts` has the states of the jobs, nodes and tenants that the
    request changes, as they were before the forecast.
    """

    user: str
    request: WhatIf
    only_first: bool
    answer: WhatIfAnswer
    facts: dict[str, str]
    shown_at: float
    confirmed_at: float = float("-inf")


_shown: WeakKeyDictionary[Daemon, OrderedDict[str, ShownEffect]] = WeakKeyDictionary()


def remember(
    call: Call, request: WhatIf, only_first: bool, answer: WhatIfAnswer, facts: dict[str, str]
) -> str:
    """Remember an answer that is sent to a user, and return its id."""
    kept, now, user = _shown.setdefault(call.daemon, OrderedDict()), call.daemon.now(), call.caller.user
    for id in [id for id, each in kept.items() if now - each.shown_at > KEPT_S]:
        del kept[id]
    own = [id for id, each in kept.items() if each.user == user]
    excess = (max(0, len(own) - MOST_OF_USER + 1), max(0, len(kept) - MOST + 1))
    for id in [*own[: excess[0]], *list(kept)[: excess[1]]]:
        kept.pop(id, None)
    id = secrets.token_hex(8)
    kept[id] = ShownEffect(user, request, only_first, answer, facts, now)
    return id


def shown_effect(call: Call, id: str) -> ShownEffect:
    """Return the answer with this id. Raise Rejected if the controller did not send this answer to the
    caller, or does not remember it any more.
    """
    shown = _shown.get(call.daemon, OrderedDict()).get(id)
    if shown is None or shown.user != call.caller.user:
        raise rejected(
            "conflict",
            "the controller does not remember this what-if answer",
            EFFECT_CHANGED,
            "Show the effect again, then confirm the change.",
        )
    return shown


def facts_of(state: State, request: WhatIf) -> dict[str, str]:
    """Return the states of the jobs, nodes and tenants that a what-if request changes, by name (such as `job
    17`).
    """
    facts = {}
    edited = [each.job for each in request.edit]
    for number in (*request.cancel, *request.preempt, *request.hold, *request.release, *edited):
        job = state.jobs.get(number)
        facts[f"job {number if job is None else job.label}"] = (
            "gone" if job is None else f"{'held, ' * job.held}{job.state.value}, attempt {job.attempt}"
        )
    for name in (*request.drain, *request.resume):
        node = state.nodes.get(name)
        facts[f"node {name}"] = "gone" if node is None else node.state.value
    for share in request.shares:
        weights = [
            account.weight
            for path, account in state.shares.accounts.items()
            if path and state.shares.name(path) == share.share
        ]
        facts[f"share {share.share}"] = f"of weight {weights[0]:g}" if weights else "gone"
    for quota in request.quotas:
        facts[f"quota of {quota.scope} {quota.name}"] = str(state.quotas.quota((quota.scope, quota.name)))
    return facts


def changed_facts(shown: ShownEffect, state: State) -> list[str]:
    """Compare the jobs, nodes and tenants of the what-if request with their states at the time of the answer.
    Return the differences as clauses for users.
    """
    return [
        f"{name} has changed" if name.startswith("quota") else f"{name} is {fact} (was {shown.facts[name]})"
        for name, fact in facts_of(state, shown.request).items()
        if shown.facts.get(name, fact) != fact
    ]


def refuse_if(found: list[str]) -> None:
    """Raise Rejected with the first NAMED of these clauses. Do nothing if `found` is empty."""
    if found:
        more = f", and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
        raise rejected(
            "conflict",
            printable(f"the effect is not the shown one any more: {'; '.join(found[:NAMED])}{more}", 900),
            EFFECT_CHANGED,
            "Look at the new effect, and confirm again.",
        )


def differences(shown: WhatIfAnswer, found: WhatIfAnswer) -> list[str]:
    """Return what is worse in the answer `found` than in the answer `shown`, as clauses for users: further
    refusals, further preempted or ended jobs, and jobs that would start later than shown. The jobs with the
    greatest difference come first.
    """
    new = [f"it would be refused: {each}" for each in found.refused if each not in shown.refused]
    stopped = {each.job for each in shown.preempted}
    new += [f"job {each.label} would be preempted" for each in found.preempted if each.job not in stopped]
    leaving = {each.job for each in shown.leaving}
    new += [f"job {each.job} would be {each.how}" for each in found.leaving if each.job not in leaving]
    # Compare new jobs by their order, because their ids change when another job is submitted.
    pairs = zip(_new(shown), _new(found), strict=False)
    worse = [(each, _start(found, each) - _start(shown, before)) for before, each in pairs]
    before = {each.job: delay(shown, each) for each in shown.shifts if not each.new}
    listed = sum(each > 0 for each in before.values()) >= shown.later
    worse += [
        (each, delay(found, each) - before.get(each.job, 0.0))
        for each in found.shifts
        if not each.new and (each.job in before or (listed and _covered(shown, each)))
    ]
    grown = [(each, by) for each, by in worse if by > max(GREW_S, GREW_PART * _wait(found, each))]
    return [*new, *(_sentence(each, by) for each, by in sorted(grown, key=lambda pair: -pair[1]))]


def _new(answer: WhatIfAnswer) -> list[Shift]:
    return [each for each in answer.shifts if each.new]


def _start(answer: WhatIfAnswer, shift: Shift) -> float:
    end = float("1e12") if answer.covers_until is None else answer.covers_until
    return end if shift.becomes is None else shift.becomes


def _covered(shown: WhatIfAnswer, shift: Shift) -> bool:
    """Return whether the shown answer would list the job if the change delayed it: without the change, the
    job starts within the time that the answer covers.
    """
    return shown.covers_until is None or (shift.was is not None and shift.was < shown.covers_until)


def _wait(answer: WhatIfAnswer, shift: Shift) -> float:
    """Return the wait of the job until its start without the change; 0 for a new job."""
    return 0.0 if shift.was is None else max(0.0, shift.was - answer.now)


def _sentence(shift: Shift, by: float) -> str:
    name = f"job {shift.label}" if not shift.new else "the new job"
    if shift.becomes is None:
        return f"the start of {name} ({shift.user}) would not be known"
    return f"{name} ({shift.user}) would start {duration(by)} later than shown"
