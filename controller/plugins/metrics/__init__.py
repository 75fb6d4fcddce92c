"""Metrics plugins: each adds metrics to the controller's page /metrics."""
