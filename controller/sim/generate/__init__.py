"""Synthetic GPU workloads: users with typical jobs, submitted by hour of day and weekday."""

from controller.sim.generate.formats import Format, lines
from controller.sim.generate.jobs import TooMany, Wish, Workload, generate

__all__ = ["Format", "TooMany", "Wish", "Workload", "generate", "lines"]
