"""Finds and watches the checkpoints that jobs write."""
