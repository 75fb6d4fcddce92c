"""Simulated stories: what an operator does with the cluster while the jobs of a log run."""
