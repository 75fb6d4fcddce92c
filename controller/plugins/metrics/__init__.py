"""Metrics plugins: each adds metrics of its own to the controller's page /metrics."""
