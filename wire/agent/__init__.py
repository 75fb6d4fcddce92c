"""Messages between controller and agent."""
