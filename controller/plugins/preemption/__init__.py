"""Preemption strategies: which running jobs may be stopped for a waiting job."""
