"""Sends random requests of every role to every route of a running controller: python -m tests.fuzz."""
