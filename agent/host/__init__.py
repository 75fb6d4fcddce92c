"""The host of the agent: its resources, the preflight report, the installation of the agent, and other
agents on it.
"""
