"""Commands for shares, quotas, licences, reservations, scheduler profiles and rebalancing."""
