"""Topology domains: which nodes and how many of them a gang can use."""

from __future__ import annotations

import numpy as np
import pytest

from controller.core.cluster.topology_domains import TopologyDomains
from wire.job.placement.gpu_requirements import Topology

RACKS = "aaabbbcc-"
"""The rack of each node, by row number. The last node has no rack."""


@pytest.mark.parametrize(
    ("domains", "nodes", "spare", "usable"),
    [
        (1, 3, 1, {0, 1, 2, 3, 4, 5}),
        (1, 4, -1, set()),
        (2, 4, 2, {0, 1, 2, 3, 4, 5, 6, 7}),
        (2, 3, -1, set()),  # Three nodes cannot be divided evenly over two racks.
        (None, 3, 1, {0, 1, 2, 3, 4, 5, 6, 7}),
        (None, 4, -1, {0, 1, 2, 3, 4, 5, 6, 7}),
    ],
)
def test_nodes_that_a_gang_can_use(domains: int | None, nodes: int, spare: int, usable: set[int]) -> None:
    racks = [{} if rack == "-" else {"rack": rack} for rack in RACKS]
    found, rows = TopologyDomains(Topology("rack", domains), racks), range(len(RACKS))
    assert found.spare_rows(rows, nodes) == spare
    assert found.usable_rows(rows, nodes) == usable
    choices = found.group_choices(rows, nodes)
    assert bool(choices) == (spare >= 0) == bool(found.choose(np.array(rows), None, nodes))
    assert {row for choice in choices for group in choice.groups for row in group} <= usable
