"""Keeping an attempt on its CPUs, and its memory beside them; read by the nursery, so imports are cheap."""

from __future__ import annotations

import ctypes
import os

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261, "riscv64": 237}
_PREFERRED, _PREFERRED_MANY = 1, 5
_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)
_libc = ctypes.CDLL(None, use_errno=True)


def bind(cpus: list[int], numa: list[int]) -> None:
    """This process and all it forks run there and take memory from there first; raises OSError."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if numa and number is not None:
        words = max(numa) // _BITS + 1
        mask = (ctypes.c_ulong * words)()
        for node in numa:
            mask[node // _BITS] |= 1 << node % _BITS
        # Preferred, not bound: a job that needs more than its NUMA node has is slow, not dead.
        mode = _PREFERRED if len(numa) == 1 else _PREFERRED_MANY
        _libc.syscall(number, mode, mask, words * _BITS + 1)
