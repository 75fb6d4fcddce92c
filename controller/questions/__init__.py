"""Answers questions (`corral explain` and `what-if`) in a separate process with a copy of the engine, so that
questions do not delay the controller."""
