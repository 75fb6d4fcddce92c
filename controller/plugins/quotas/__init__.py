"""Quota providers: each reads the quotas of users, projects and queues from one source."""
