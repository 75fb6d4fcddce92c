"""The HTTP client of the controller's API."""
