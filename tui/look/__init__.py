"""The appearance of the terminal UI: colours, symbols, table cells and column widths."""
