"""Answers questions (`corral explain` and `what-if`) in a separate process with a copy of the engine, so that
they do not delay the controller."""
