"""Execution engines: other systems that run Corral's jobs, such as Docker, Slurm and Kubernetes."""
