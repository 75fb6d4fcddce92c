"""Benchmarks. They print figures beside their limits and assert nothing: `make bench` for all, or `python -m
benchmarks core system` for some groups.
"""
