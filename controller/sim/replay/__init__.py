"""Replays the journal of a controller under another scheduler.toml and shows when each job would have
started."""
