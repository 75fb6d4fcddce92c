"""Figures for whoever watches the controller."""
