"""The views of the scheduling policy: shares, quotas, reservations, and moves of running jobs."""
