"""Converts flags, job scripts and #SBATCH lines to a JobSpec, and a JobSpec to flags."""
