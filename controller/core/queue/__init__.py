"""The queue of waiting jobs, divided into lanes (jobs with equal requests), and the order of the queue."""
