"""The past under another scheduler.toml: what would have started when, had it been in force."""
