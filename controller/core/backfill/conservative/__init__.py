"""Conservative backfill: a reservation for every waiting job on timelines of the nodes."""
