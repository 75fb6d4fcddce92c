"""Applies events, by what they happen to."""
