"""Commands that report: usage, events, estimates."""
