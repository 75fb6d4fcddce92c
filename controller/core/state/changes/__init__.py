"""Applies events to the state: one module for each subject of events."""
