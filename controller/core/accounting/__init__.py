"""Accounts GPU-hours: what each tenant got and was entitled to, and why the idle GPUs were idle."""
