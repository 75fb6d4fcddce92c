"""The scheduling pass: starts jobs in queue order, reserves resources for the first job that must wait, and
backfills.
"""
