"""Routes for fair-share weights, quotas, licences, reservations, scheduler profiles and rebalancing."""
