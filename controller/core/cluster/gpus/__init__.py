"""The GPUs of nodes: counts, health, topology, the types that suit a request, and the value of free GPUs."""
