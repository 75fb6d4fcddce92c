"""Measures what backfill gains from predicted run times, on generated logs."""
