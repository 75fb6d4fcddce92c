"""The kinds of notes. A note is a database row for state that is neither a job nor a node."""
