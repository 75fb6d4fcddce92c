"""The HTTP server: listeners, identity, routes, errors, OpenAPI and the event stream."""
