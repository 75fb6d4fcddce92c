"""The queue of waiting jobs, in lanes of equal requests."""
