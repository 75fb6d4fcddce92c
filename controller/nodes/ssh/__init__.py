"""Connections to agents on hosts that are reached by SSH."""
