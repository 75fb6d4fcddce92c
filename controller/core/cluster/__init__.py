"""Nodes and their GPUs as the scheduler sees them: capacity, labels, topology, health, licences."""
