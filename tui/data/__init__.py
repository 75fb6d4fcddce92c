"""The data that the screens show: the modules receive the state of the cluster, keep it, and make filtered
lists of jobs, nodes and other objects.
"""
