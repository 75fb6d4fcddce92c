"""Hosts, quotas and reservations, in the form that scheduler.toml and the API use."""
