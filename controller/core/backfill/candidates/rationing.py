"""Finds the users whose jobs backfill tries last. Such a user has used more than its part of the project's
use, while another user of the project has used less than its part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.fairshare.share_tree import SharePath

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle

ABOVE = 1.05
"""A user is above its part if it has used more than its part times this factor. A user's part is the fraction
of its project's use to which the user's weight entitles it.
"""


def rationed_users(cycle: Cycle, now: float) -> frozenset[SharePath]:
    """Return the users, as paths in the fair-share tree, whose jobs backfill tries after all other jobs.

    Algorithm
    1. Take the projects that have used more than their shares. For a project in an organisation, compare the
       use and the share of the organisation. All other projects are left out: they would get even less if
       some of their users came last.
    2. Divide the use of each of these projects into parts, by the weights of its users with jobs
       (`ShareTree.part_of_project`).
    3. Return the users above their parts (ABOVE), if another user with waiting jobs in the same project is
       below its part.

    Without this rule, the narrow jobs (jobs of few GPUs) of one user take each GPU that becomes free. The use
    of the project grows, so the wider jobs of its other users move back in the queue and never get a node.
    Invariant: only the order of the candidates changes. A job still starts if no other job takes its GPUs.
    Cost: O(lanes).

    Example: a project has used more than its share. Its users ann and bob have the same weight and have used
    300 and 100 GPU-hours. Jobs of one GPU of ann wait, and a job of four GPUs of bob. A GPU that becomes free
    goes to jobs of other projects first. The GPU goes to ann only if no job of another project fits.
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
