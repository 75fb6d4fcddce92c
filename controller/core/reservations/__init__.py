"""Advance reservations: operators keep nodes for users, projects or maintenance during a given time."""
