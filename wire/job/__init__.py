"""JobSpec and its parts."""
