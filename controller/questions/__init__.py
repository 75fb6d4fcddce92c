"""Answers explain and what-if in a separate process with a copy of the engine, without delaying the
controller."""
