"""Figures, never asserted: `make bench`, or `python -m benchmarks core system` for some of them."""
