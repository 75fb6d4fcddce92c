"""Draws the charts of the report as SVG."""
