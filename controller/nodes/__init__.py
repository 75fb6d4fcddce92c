"""Links to agents."""
