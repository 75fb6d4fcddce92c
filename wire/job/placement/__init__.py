"""The parts of a JobSpec that restrict the nodes and GPUs of the job: affinity, tolerations, job affinity and
GPU requirements.
"""
