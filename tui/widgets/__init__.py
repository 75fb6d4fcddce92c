"""Widgets: lines, scrolling panes, tables."""
