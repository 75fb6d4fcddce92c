"""Applies events to the state. Each module handles the events about one subject, such as nodes."""
