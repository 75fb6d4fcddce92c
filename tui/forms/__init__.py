"""Forms as plain data, one file for each thing that can be asked for."""
