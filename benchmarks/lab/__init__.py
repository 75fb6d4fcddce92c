"""Measures a scheduling policy on weeks of a university lab in virtual time."""
