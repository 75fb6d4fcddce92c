"""The data that the screens show: the state of the cluster, how it is received, and lists of it with
filters.
"""
