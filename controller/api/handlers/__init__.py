"""The handlers of the routes, by resource."""
