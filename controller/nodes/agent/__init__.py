"""The agent program as it is sent to a host and started there."""
