"""Checks scheduler.toml for mistakes and keys without effect, and says in sentences what the policy means."""
