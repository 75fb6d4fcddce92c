"""Generates GPU workloads: users with typical jobs, submitted by hour of the day and by weekday."""

from controller.sim.generate.formats import Format, lines
from controller.sim.generate.jobs import TooMany, Workload, WorkloadRequest, generate

__all__ = ["Format", "TooMany", "Workload", "WorkloadRequest", "generate", "lines"]
