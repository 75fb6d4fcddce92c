"""Checkpoints that jobs write: found, watched and reported."""
