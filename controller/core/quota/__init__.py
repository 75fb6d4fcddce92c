"""Quotas of users, projects and queues, and the counters they are checked against."""
