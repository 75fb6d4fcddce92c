"""Metrics plugins: additional samples for /metrics."""
