"""Metrics plugins: each adds samples to /metrics."""
