"""The appearance of the terminal UI: colours, symbols, cells, columns."""
