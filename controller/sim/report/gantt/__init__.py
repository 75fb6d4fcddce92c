"""The Gantt chart of the report: which job ran on which GPU at what time."""
