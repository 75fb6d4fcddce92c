"""The messages between controller and agent, and the job settings that the controller passes to agents."""
