"""The widgets of the terminal UI: single lines, scrolling areas and tables."""
