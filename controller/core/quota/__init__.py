"""Quotas of users, projects and queues, and the usage counters that are compared with them."""
