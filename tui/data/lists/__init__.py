"""The lists that the screens show: their rows, their filter and sort order, and the rows that are folded."""
