"""The operator of the demo: sets quotas and shares, makes reservations, and takes a broken GPU out of
service.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cli.demo.jobs import TRAIN_GANG, Part
from wire.api.policy.shares import ShareWeight
from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.http.client import Client

SICK_NODE, SICK_GPU = "gpu04", "5"
FAULT = "double-bit ECC error"
LARGE = Part(
    "emil", "world-model", TRAIN_GANG, 20, gpus=32, nodes=4, cpus=16, memory_gib=128, priority="HIGH"
)
"""A job that needs all GPUs. It waits as long as one GPU is out of service."""
SHARES = {"biology": 3.0, "language": 2.0}
QUOTAS = {("project", "vision"): 16.0, ("project", "speech"): 8.0, ("user", "dina"): 20.0}
HOUR_S = 3_600.0


def break_gpu(client: Client, workdir: str, stretch: float) -> None:
    """Take a GPU out of service, and submit a job that therefore waits."""
    client.cordon_gpu(SICK_NODE, SICK_GPU, FAULT)
    client.submit(LARGE.spec(workdir, stretch), as_user=LARGE.user)


def set_policies(client: Client, nodes: Sequence[str]) -> None:
    """Set shares and quotas, and reserve nodes. Call this after the projects have had jobs, because a project
    without jobs has no share.
    """
    for project, weight in SHARES.items():
        client.set_share(ShareWeight(project, weight))
    for (scope, name), gpus in QUOTAS.items():
        client.set_quota(scope, name, Quota(Limits(gpus=gpus)))
    # Begin at a full hour, and late enough for all jobs of the demo to end before the reservations.
    begin = (time.time() // HOUR_S + 3) * HOUR_S
    client.reserve(ReservationSpec("course", begin, 2 * HOUR_S, count=1, projects=("vision",), why="lecture"))
    client.reserve(ReservationSpec("new-fans", begin + 3 * HOUR_S, HOUR_S, nodes=tuple(nodes[:1])))
