"""The kinds of backfill: rules for starting jobs while an earlier job waits."""
