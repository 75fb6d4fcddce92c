"""Finds the users whose jobs backfill tries last, because other users of their project have got less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.fairshare.share_tree import SharePath

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle

ABOVE = 1.05
"""A user is above its part of the use of its project if it has used this many times as much as its part."""


def rationed_users(cycle: Cycle, now: float) -> frozenset[SharePath]:
    """Return the users, as paths in the share tree, whose jobs backfill tries after all other jobs.

    Algorithm
    1. Take the projects that have used more than their shares. If users of other projects came last, these
       projects would get still less.
    2. Divide the use of each by the weights of its users with jobs (`ShareTree.part_of_project`).
    3. Take the users above their parts, if another user of the project waits and is below its part.

    Otherwise the narrow jobs of one user take each GPU that becomes free. The use of the project grows, so
    the wider jobs of its other users come later in the queue and never get a node.
    Invariant: only the order of the candidates changes. A job still starts if no other job takes its GPUs.
    Cost: O(lanes).

    Example: ann and bob of a project have used 300 and 100 GPU-hours. Ann waits with jobs of one GPU, bob
    with a job of four. A GPU that becomes free goes to jobs of other projects first, and to ann only if none
    of them fits.
    """
    state = cycle.state
    waiting: dict[SharePath, set[SharePath]] = {}
    for lane in cycle.queue:
        head = lane.head()
        if head is not None:
            tenant = state.tenant(state.jobs[head[1]])
            waiting.setdefault(tenant[:-1], set()).add(tenant)
    found = set()
    for project, users in waiting.items():
        if len(users) > 1 and state.shares.above_share(project[0], now):
            part = {user: state.shares.part_of_project(user, state.capacity, now) for user in users}
            if min(part.values()) < 1.0:
                found |= {user for user in users if part[user] > ABOVE}
    return frozenset(found)
