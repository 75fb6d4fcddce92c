"""The cluster and Slurm's commands for programs that submit jobs."""

from __future__ import annotations

from tests.cli.slurm.submit.conftest import cluster, commands, slurm

__all__ = ["cluster", "commands", "slurm"]
