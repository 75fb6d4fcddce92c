"""Functions for several commands: they select jobs, wait for jobs, show logs and connect terminals."""
