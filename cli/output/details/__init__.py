"""The details of one job or one node, as pairs of heading and value."""
