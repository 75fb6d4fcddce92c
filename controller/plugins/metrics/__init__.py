"""Metrics plugins: each adds further metrics to the controller's page /metrics."""
