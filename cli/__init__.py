"""Placing work on GPU hosts: the command line."""
