"""Runs the scheduling engine in virtual time on virtual nodes: simulates job logs, replays journals, and
writes reports about both."""
