"""The placement benchmark: pods are placed one by one until the GPUs are used up."""
