"""The attempts of jobs on this host: states, records in the spool, and launches."""
