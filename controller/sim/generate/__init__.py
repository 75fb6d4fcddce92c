"""Generates random GPU workloads: users submit typical jobs, mostly in working hours."""

from controller.sim.generate.formats import Format, lines
from controller.sim.generate.jobs import TooMany, Workload, WorkloadRequest, generate

__all__ = ["Format", "TooMany", "Workload", "WorkloadRequest", "generate", "lines"]
