"""The host: its resources, the preflight, the installation of the agent, and other agents on the host."""
