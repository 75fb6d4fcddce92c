"""The client of the controller's HTTP API, and how it finds and reaches the controller."""
