"""Translates #SBATCH lines and the options of sbatch to options of Corral."""
