"""Routes for shares, quotas, licences, reservations, profiles and rebalancing."""
