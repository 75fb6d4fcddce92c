"""Quotas by time: the opening hours of queues, and the tables [hours.NAME] that are in force."""
