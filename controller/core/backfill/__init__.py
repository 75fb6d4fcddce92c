"""The scheduling pass: starts jobs in queue order, reserves resources for the first that waits, backfills."""
