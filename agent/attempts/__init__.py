"""The attempts of jobs on this host: their states, their records in the spool, and their launch."""
