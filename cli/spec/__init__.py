"""From flags, job scripts and sbatch directives to a JobSpec, and back."""
