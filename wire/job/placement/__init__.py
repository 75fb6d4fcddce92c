"""The parts of a JobSpec about its nodes and GPUs: affinity, taints, job affinity and GPU requirements."""
