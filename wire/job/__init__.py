"""JobSpec, the request of a job, and its parts."""
