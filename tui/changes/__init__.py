"""Changes that the operator asks for: confirmed, sent, reported."""
