"""Predicts how long jobs will run, from the run times of similar jobs."""
