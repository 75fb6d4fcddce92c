"""Fault injection by seed in virtual time, with an oracle that checks the guarantees of the scheduler."""
