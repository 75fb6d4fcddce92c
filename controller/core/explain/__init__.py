"""Explains to users why a job waits."""
