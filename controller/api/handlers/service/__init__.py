"""Routes for the controller itself: cluster, events, metrics, reports, configuration, store."""
