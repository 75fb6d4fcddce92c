"""The parts screens are made of: lines, panes of lines, tables."""
