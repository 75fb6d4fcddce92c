"""The HTTP server of the API: sockets, callers and their rights, routes, errors, OpenAPI and event
streams."""
