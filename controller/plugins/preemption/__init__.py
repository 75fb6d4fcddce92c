"""Preemption strategies: for whom running jobs may be ended."""
