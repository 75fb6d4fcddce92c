"""Runs the scheduling engine in virtual time on virtual nodes: simulation of job logs, replay, and
reports."""
