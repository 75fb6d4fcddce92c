"""Verifies stores, backs them up and restores them, and deletes their old rows."""
