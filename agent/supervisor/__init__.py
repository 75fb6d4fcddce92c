"""The supervisor runs one attempt. The fork server starts supervisors."""
