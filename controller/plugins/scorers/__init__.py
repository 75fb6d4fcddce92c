"""Scorers: how good a node is for a part, 0..1."""
