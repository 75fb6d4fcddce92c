"""Generates GPU workloads: users with typical jobs, submitted by hour of the day and by weekday."""

from controller.sim.generate.formats import Format, lines
from controller.sim.generate.jobs import TooMany, Wish, Workload, generate

__all__ = ["Format", "TooMany", "Wish", "Workload", "generate", "lines"]
