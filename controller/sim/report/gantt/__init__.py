"""The Gantt chart of the report."""
