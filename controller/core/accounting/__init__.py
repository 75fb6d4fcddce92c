"""Accounting of GPU-hours: how many each tenant used and was entitled to, and why idle GPUs were idle."""
