"""Stores the journal, and tables with the current rows of jobs, nodes and other state, in a database."""
