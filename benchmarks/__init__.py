"""Benchmarks. They print figures beside their limits, and do not fail if a figure is above its limit. `make
bench` runs all of them, and `python -m benchmarks core system` some groups.
"""
