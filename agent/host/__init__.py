"""The host of the agent: its resources, the preflight report (checks before the host becomes a node), the
installation of the agent, and other agents on the host.
"""
