"""The view Plan: a chart of running and expected jobs over time, by node, job or user (Gantt chart)."""
