"""The tables of scheduler.toml with their default values."""
