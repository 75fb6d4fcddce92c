"""Reads stories for corral sim. Each line of a story is a time and a corral command."""
