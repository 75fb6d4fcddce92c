"""Orders: how waiting jobs are ranked."""
