"""The data that the screens show. The modules receive and store the state of the cluster, and build filtered
lists of jobs, nodes and other objects.
"""
