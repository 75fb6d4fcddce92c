"""The HTTP API of the controller: the server, the request handlers, and the JSON objects in their answers."""
