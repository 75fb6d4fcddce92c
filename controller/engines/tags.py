"""Makes and reads the tags of foreign jobs. A tag names the cluster, the job, the attempt and the rank of the
node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CLUSTER_DIGITS = 12
"""The number of hexadecimal digits of the store's id that a tag contains."""
_TAG = re.compile(r"corral-([0-9a-f]{12})-(\d{1,16})-(\d{1,9})-(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Tag:
    """The parts of a tag. Example: corral-0f3a9c112233-42-1-0 is attempt 1 of job 42 on its first node."""

    cluster: str
    job: int
    attempt: int
    rank: int

    def __str__(self) -> str:
        return f"{prefix_of(self.cluster)}{self.job}-{self.attempt}-{self.rank}"


def prefix_of(store_id: str) -> str:
    """Return the first part of all tags of a cluster, from the id of its store."""
    return f"corral-{store_id[:CLUSTER_DIGITS]}-"


def parse_tag(text: str, prefix: str) -> Tag | None:
    """Return the parts of a tag of this cluster; None for a tag of another cluster and any other text."""
    match = _TAG.fullmatch(text)
    if match is None or not text.startswith(prefix):
        return None
    return Tag(match[1], int(match[2]), int(match[3]), int(match[4]))
