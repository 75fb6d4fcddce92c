"""What each event makes of the state, by what it happens to."""
