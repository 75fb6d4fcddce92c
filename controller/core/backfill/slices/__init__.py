"""Time slices: running jobs that can save their state give way to waiting jobs, and continue later."""
