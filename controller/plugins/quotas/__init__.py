"""Quota providers: where quotas are defined."""
