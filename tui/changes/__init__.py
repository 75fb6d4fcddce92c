"""Changes that a user makes to the cluster: ask for confirmation, send the request, show the result."""
