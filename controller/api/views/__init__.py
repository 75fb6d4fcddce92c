"""Builds the objects of wire.api that the API sends: views of jobs and nodes, and sentences for events."""
