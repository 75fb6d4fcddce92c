"""Runs the steps of srun: which tasks they have, where the tasks run, and how the steps are recorded."""
