"""Limits and isolation of an attempt: control groups, containers, scratch directories."""
