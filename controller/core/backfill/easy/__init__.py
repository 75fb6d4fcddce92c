"""EASY backfill: the reservation of the first waiting job, and the placements that do not delay this job."""
