"""Conservative backfill: every waiting job gets a reservation. The reservations are on timelines of the
nodes' free resources.
"""
