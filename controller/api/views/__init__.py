"""The views of the API: resources and event sentences."""
