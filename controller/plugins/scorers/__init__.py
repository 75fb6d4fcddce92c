"""Scorers: how good a node is for a request, from 0 to 1."""
