"""GPUs of this host: NVML, simulated GPUs, processes on GPUs, usage, resets."""
