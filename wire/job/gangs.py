"""Settings of gangs (jobs on several nodes): the smallest number of nodes, and what happens when a member
fails.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Iterator, Optional

from wire.dataclass import dataclass

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

LONGEST_S = 10 * 365 * 86_400.0


class MemberFailure(str, enum.Enum):
    """What Corral does with the other members of a gang when one member fails."""

    FAIL = "fail"
    """End the other members of the gang. The job ends as FAILED."""
    CONTINUE = "continue"
    """Let the other members continue. The job counts as completed if at least `min_nodes` members
    completed.
    """
    RESTART = "restart"
    """End the other members and queue the job again, as its restart policy allows. A job without a restart
    policy is restarted up to three times.
    """


@dataclass(frozen=True)
class Gang:
    """Settings of a job that runs on several nodes.

    With `min_nodes` the job waits `assembly_s` seconds for all its nodes. After that time, the job also
    starts on fewer nodes, but at least on `min_nodes` nodes. An `elastic` job may lose nodes while it runs,
    down to `min_nodes`, instead of being preempted. While no other job waits, an elastic job gets more nodes.
    An elastic job keeps its first node, because the members of the gang connect to that node.
    """

    min_nodes: Optional[int] = None
    assembly_s: float = 0.0
    on_failure: MemberFailure = MemberFailure.FAIL
    elastic: bool = False
    mixed_models: bool = False
    """True if the job may get GPUs of different models; otherwise all its GPUs are of one model."""


NO_GANG = Gang()


def gang_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate the gang settings of a JobSpec. Yield each mistake as (field name, sentence for users)."""
    gang = spec.gang
    if gang.min_nodes is not None:
        if spec.nodes is None:
            yield "gang.min_nodes", "has no effect without a number of nodes"
        elif not 1 <= gang.min_nodes <= spec.nodes:
            yield "gang.min_nodes", f"must lie between 1 and the {spec.nodes} requested nodes"
    if not 0 <= gang.assembly_s <= LONGEST_S:
        yield "gang.assembly_s", "must not be negative, and at most ten years"
    if gang.elastic and gang.min_nodes is None:
        yield "gang.elastic", "has no effect without min_nodes"
    if gang.assembly_s and gang.min_nodes is None:
        yield "gang.assembly_s", "has no effect without min_nodes: the job always waits for all its nodes"
