"""Answers questions about the future with a replica of the engine, so that the controller is not delayed."""
