"""Handles the inputs of the engine: user commands, operator commands, and agent reports."""
