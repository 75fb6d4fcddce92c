"""Hosts, quotas, reservations and MIG profiles, in the form that configuration, API and journal share."""
