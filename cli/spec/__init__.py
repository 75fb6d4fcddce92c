"""Conversion of flags, job scripts and sbatch directives to a JobSpec, and of a JobSpec to flags."""
