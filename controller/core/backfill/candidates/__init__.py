"""Starts waiting jobs behind the first waiting job, also with shorter time limits, and grows elastic jobs."""
