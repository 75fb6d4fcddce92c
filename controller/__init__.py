"""The daemon: it owns the queue and decides."""
