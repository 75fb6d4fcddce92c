"""Proposes moves of running jobs to other nodes, to gather free GPUs, drain nodes and balance loads."""
