"""Gang settings: the fewest nodes of a job, and the effect of a failed member."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator, Optional

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

LONGEST_S = 10 * 365 * 86_400.0


class MemberFailure(str, enum.Enum):
    """What happens to the other members when one fails."""

    FAIL = "fail"
    """The others are ended, and the job has failed."""
    CONTINUE = "continue"
    """The others continue; the job has completed if at least `min_nodes` members completed."""
    RESTART = "restart"
    """The others are ended, and the job is queued again: by its restart policy, or up to three times."""


@dataclass(frozen=True)
class Gang:
    """Settings of a job that runs on several nodes.

    With `min_nodes` it starts on at least that many nodes after it has waited `assembly_s` seconds for all.
    If it is `elastic`, it may lose nodes down to `min_nodes` while it runs, instead of being preempted,
    and gets nodes while no other job waits. Its first node stays, because the members connect to it.
    """

    min_nodes: Optional[int] = None
    assembly_s: float = 0.0
    on_failure: MemberFailure = MemberFailure.FAIL
    elastic: bool = False
    mixed_models: bool = False
    """True if its nodes may have different GPU models; otherwise all its GPUs are of one model."""


NO_GANG = Gang()


def gang_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Everything wrong with the gang of a spec, as (field, sentence)."""
    gang = spec.gang
    if gang.min_nodes is not None:
        if spec.nodes is None:
            yield "gang.min_nodes", "means nothing without a number of nodes"
        elif not 1 <= gang.min_nodes <= spec.nodes:
            yield "gang.min_nodes", f"must lie between 1 and the {spec.nodes} nodes asked for"
    if not 0 <= gang.assembly_s <= LONGEST_S:
        yield "gang.assembly_s", "must not be negative, and at most ten years"
    if gang.elastic and gang.min_nodes is None:
        yield "gang.elastic", "means nothing without min_nodes"
    if gang.assembly_s and gang.min_nodes is None:
        yield "gang.assembly_s", "means nothing without min_nodes: all nodes are waited for anyway"
