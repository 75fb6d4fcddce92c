"""Nodes and their GPUs: capacity, labels, topology, health; and licences."""
