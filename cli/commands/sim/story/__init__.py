"""Reads stories for corral sim: lines of a time and a command of corral."""
