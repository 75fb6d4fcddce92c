"""Checks scheduler.toml for mistakes and keys without effect, and describes the scheduling policy in
sentences."""
