"""The kinds of backfill: which jobs may start while a job before them waits."""
