"""The queue of waiting jobs, divided into lanes of jobs with equal requests."""
