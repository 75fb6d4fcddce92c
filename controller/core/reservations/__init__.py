"""Advance reservations, with which operators keep nodes for users, projects or maintenance."""
