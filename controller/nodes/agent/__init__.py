"""Sends the agent program to a host, and starts the agent there."""
