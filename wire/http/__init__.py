"""The client of the controller's HTTP API: it finds the controller, connects to it, and sends requests."""
