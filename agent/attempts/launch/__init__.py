"""The launch of an attempt: turns a start order into a launch spec with user, environment and CPUs."""
