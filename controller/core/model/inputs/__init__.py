"""The inputs that the engine handles: commands, reports of agents, and the clock."""
