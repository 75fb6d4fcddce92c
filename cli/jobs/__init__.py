"""Functions that several commands use: they select jobs, wait for jobs, show logs and connect terminals."""
