"""The scheduling cycle. It starts jobs in queue order, reserves resources for the first job that must wait,
and backfills (starts later jobs that delay no reservation).
"""
