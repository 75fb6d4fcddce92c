"""Replays the journal of a controller under another scheduler.toml: which jobs would have started when."""
