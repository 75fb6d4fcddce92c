"""The GPUs of this host: readings by NVML, simulated GPUs, processes on GPUs, usage and resets."""
