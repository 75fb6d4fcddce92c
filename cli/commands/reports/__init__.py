"""Commands about the past: reports, usage and events."""
