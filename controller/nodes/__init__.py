"""Connections between the controller and the agents on the nodes."""
