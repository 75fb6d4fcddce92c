"""Proposes moves of running jobs, to defragment free GPUs, drain nodes and balance loads."""
