"""Orders: which job comes first."""
