"""The process that runs one attempt, and the fork server that starts supervisors."""
