"""The GPUs of nodes: their number, health, topology and types. Also finds the types that suit a request, and
the value of free GPUs.
"""
