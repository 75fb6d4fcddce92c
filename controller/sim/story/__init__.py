"""Simulated stories: lists of commands that an operator gives while the jobs of a log run."""
