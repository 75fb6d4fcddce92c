"""Advance reservations: operators keep nodes for users, projects or maintenance."""
