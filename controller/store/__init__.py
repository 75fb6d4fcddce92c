"""Stores in a database the journal (all events) and the present state: a row for each job, node and other
object."""
