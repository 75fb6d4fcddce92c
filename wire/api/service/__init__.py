"""API bodies of the controller itself: the cluster, the configuration, reports and the store."""
