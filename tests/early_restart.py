"""A broken controller that requeues jobs of a lost node before their lease is over: `python -m
tests.early_restart`."""

from __future__ import annotations

import sys

import controller.__main__
from controller.core.lifecycle import node_loss
from controller.core.lifecycle.node_loss import NodeLossPolicy
from controller.core.model.job import Job


def lost_at_once(job: Job, losses: NodeLossPolicy) -> float | None:
    """Replaces node_loss.lost_after_s: 0 s of silence count as safe, which is wrong."""
    return None if job.spec.lease_s is None else 0.0


if __name__ == "__main__":
    node_loss.lost_after_s = lost_at_once
    sys.exit(controller.__main__.main(sys.argv[sys.argv.index("--config") + 1]))
