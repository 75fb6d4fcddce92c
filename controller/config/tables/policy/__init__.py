"""Tables of the scheduling policy: order, backfill, quotas, preemption, profiles and policies by hour."""
