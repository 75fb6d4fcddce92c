"""Filters: which nodes can hold a part at all."""
