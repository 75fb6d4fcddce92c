"""Decides when a waiting job enters the queue: gates, dependencies, array limits and inherited priorities."""
