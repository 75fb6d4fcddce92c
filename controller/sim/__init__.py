"""Virtual time and virtual nodes around the very same engine."""
