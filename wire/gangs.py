"""What holds a job on several nodes together: with how few it does, and what losing one means."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator, Optional

if TYPE_CHECKING:
    from wire.spec import JobSpec

LONGEST_S = 10 * 365 * 86_400.0


class MemberFailure(str, enum.Enum):
    """What becomes of the others when a member fails."""

    FAIL = "fail"
    """They are ended, and the job has failed."""
    CONTINUE = "continue"
    """They go on; the job has completed if as many as it needs ended well."""
    RESTART = "restart"
    """They are ended, and all start anew: by the job's restart policy, else up to three times."""


@dataclass(frozen=True)
class Gang:
    """How a job on `nodes` nodes keeps together.

    With `min_nodes` it starts on fewer, but not fewer than that, once it has waited `assembly_s` for all.
    If it is `elastic`, it may lose nodes down to that many while it runs, instead of being preempted whole,
    and gets nodes while nobody else waits. The first of its nodes stays: there the others find each other.
    """

    min_nodes: Optional[int] = None
    assembly_s: float = 0.0
    on_failure: MemberFailure = MemberFailure.FAIL
    elastic: bool = False


NO_GANG = Gang()


def gang_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """What is wrong with the gang of a spec, as (field, sentence)."""
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
