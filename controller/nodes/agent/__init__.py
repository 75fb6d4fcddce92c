"""Sends the agent program to a host, and starts it there."""
