"""Synthetic GPU workloads: people with habits, and what they submit by hour and weekday."""

from controller.sim.generate.formats import Format, lines
from controller.sim.generate.jobs import TooMany, Wish, Workload, generate

__all__ = ["Format", "TooMany", "Wish", "Workload", "generate", "lines"]
