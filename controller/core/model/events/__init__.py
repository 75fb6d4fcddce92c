"""Events record what has happened. Only events change the state, and the journal has all events."""
