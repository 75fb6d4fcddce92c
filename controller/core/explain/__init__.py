"""Explains why a job waits."""
