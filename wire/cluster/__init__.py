"""Hosts, quotas and reservations, in the form that scheduler.toml, the API and the journal share."""
