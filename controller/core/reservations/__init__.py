"""Advance reservations of nodes."""
