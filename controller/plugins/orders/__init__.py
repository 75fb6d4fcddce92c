"""Orders: each ranks the waiting jobs."""
