"""Hosts, quotas and reservations as they are written in scheduler.toml and the API."""
