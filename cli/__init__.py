"""The command line of Corral."""
