"""Starts jobs behind the first waiting job, if necessary with a shorter time limit, and adds nodes to elastic
jobs."""
