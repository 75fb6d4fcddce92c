"""How things look: colours, glyphs, cells, columns."""
