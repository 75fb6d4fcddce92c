"""The supervisor, which runs one attempt, and the fork server, which starts supervisors."""
