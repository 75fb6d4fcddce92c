"""Commands for projects, queues, quotas, shares, licences, reservations, services, profiles and moves."""
