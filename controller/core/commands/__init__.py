"""Handles inputs: user commands, operator commands, agent reports."""
