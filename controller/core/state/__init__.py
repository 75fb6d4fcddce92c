"""The state of the cluster, the changes that events make to it, and its rows on disk."""
