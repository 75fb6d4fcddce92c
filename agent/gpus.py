"""Where GPUs come from: made up for demos and tests, or none. NVML is asked elsewhere (nvml.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """What makes a kind of GPU believable."""

    name: str
    memory_mib: int
    idle_w: int
    full_w: int
    nvlink: int


MODELS = {
    "H100": Model("NVIDIA H100 80GB HBM3", 81_559, 72, 700, 8),
    "H200": Model("NVIDIA H200", 143_771, 75, 700, 8),
    "A100": Model("NVIDIA A100-SXM4-80GB", 81_920, 62, 400, 8),
    "A100-40G": Model("NVIDIA A100-SXM4-40GB", 40_960, 55, 400, 8),
    "V100": Model("Tesla V100-SXM2-32GB", 32_768, 42, 300, 8),
    "L40S": Model("NVIDIA L40S", 46_068, 35, 350, 1),
    "L4": Model("NVIDIA L4", 23_034, 16, 72, 1),
    "T4": Model("Tesla T4", 15_360, 10, 70, 1),
    "RTX4090": Model("NVIDIA GeForce RTX 4090", 24_564, 20, 450, 1),
}
