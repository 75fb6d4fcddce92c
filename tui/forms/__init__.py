"""Forms as plain data, one module per kind of form."""
