"""What decides when a waiting job enters the queue: gates, dependencies, array limits, inherited priority."""
