"""Nodes with their capacity, labels, topology and GPUs, and the licences of the cluster."""
