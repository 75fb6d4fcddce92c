"""Decisions: synchronous, pure, deterministic."""
