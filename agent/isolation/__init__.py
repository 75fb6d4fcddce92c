"""Limits and isolation of attempts: cgroups, containers and scratch directories."""
