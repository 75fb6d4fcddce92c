"""Replays a controller's journal under another configuration, and shows when each job would have started."""
