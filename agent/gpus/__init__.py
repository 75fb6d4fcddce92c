"""The GPUs of this host: their readings from NVML, simulated GPUs, the processes on GPUs, GPU usage and
resets.
"""
