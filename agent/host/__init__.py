"""The host: facts, preflight, bootstrap of the agent, other agents on the machine."""
