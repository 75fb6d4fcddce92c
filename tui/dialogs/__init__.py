"""What opens over a view and asks something."""
