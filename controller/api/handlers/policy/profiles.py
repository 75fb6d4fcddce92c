"""Routes of scheduler profiles (policies for some jobs and nodes): list and show."""

from __future__ import annotations

from collections import Counter

from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.config import nearest
from controller.core.framework.profiles import Profile
from controller.core.state.state import State
from wire.api.policy.profiles import ProfileList, ProfileView
from wire.names import JobState
from wire.text import printable

POLICY = ("order", "then", "backfill", "backfill_delay_s", "backfill_depth", "filters", "scorers", "picker")
"""The keys of [scheduler] that a scheduler profile may override. The key `strategy` is left out, because
views show the scorers and the picker of the strategy instead.
"""


async def listing(call: Call) -> ProfileList:
    """List all scheduler profiles (scheduling policies).

    A job belongs to the first profile that matches the job.
    """
    await call.daemon.settled()
    profiles = call.daemon.state.profiles
    return ProfileList(tuple(_view(call, each) for each in profiles), call.daemon.seq)


async def show(call: Call) -> ProfileView:
    """Show one scheduler profile: its jobs, its nodes and its scheduling policy."""
    await call.daemon.settled()
    name, profiles = call.path["profile"], call.daemon.state.profiles
    found = next((each for each in profiles if each.name == name), None)
    if found is None:
        names = [each.name for each in profiles]
        none = "This cluster has no profiles: [scheduler] applies to all jobs."
        hint = nearest(name, names) if names else none
        raise rejected("not_found", f"there is no profile {printable(name)!r}", "profile", hint)
    return _view(call, found)


def _view(call: Call, profile: Profile) -> ProfileView:
    state, config = call.daemon.state, call.daemon.config.of_profile(profile.name)
    columns = state.nodes.columns
    mine = profile.rows(columns)
    states = Counter(job.state for job in state.live() if job.profile == profile.name)
    return ProfileView(
        profile.name,
        profile.queues,
        profile.projects,
        profile.users,
        tuple(map(str, profile.nodes)),
        tuple(node.name for node in state.nodes.rows if mine[node.row]),
        int(columns.gpu_count[mine].sum()),
        _shared(state, profile),
        states[JobState.QUEUED],
        states[JobState.SCHEDULED] + states[JobState.RUNNING],
        config.scheduler.model_dump(mode="json", include=set(POLICY), exclude_none=True),
        config.preemption.model_dump(mode="json"),
        call.daemon.engine.pipeline.breaker.failing,
    )


def _shared(state: State, profile: Profile) -> tuple[str, ...]:
    """Return the names of the other scheduler profiles that have nodes in common with `profile`."""
    columns = state.nodes.columns
    mine = profile.rows(columns)
    others = (each for each in state.profiles if each.name != profile.name)
    return tuple(each.name for each in others if (each.rows(columns) & mine).any())
