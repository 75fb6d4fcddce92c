"""Scorers: each rates from 0 to 1 how well a node suits a request."""
