"""Replays a controller's journal (all its events) under another configuration, and shows when each job would
have started."""
