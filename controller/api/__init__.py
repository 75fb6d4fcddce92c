"""The HTTP API of the controller: the server, the request handlers, and the objects that they send."""
