"""The Gantt chart of the report, with a bar for each job on each of its GPUs over time."""
