"""The state of the cluster, the changes that events make to it, and the database rows in which it is
stored.
"""
